package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// Fortran's side of the standard ABI (MPI-5.0, chapter 19): mpif.h and the modules, which call the routines of fortranStandard. Buffers
// have no interface that says more than their address, so sections of arrays are copied for each call (MPI_SUBARRAYS_SUPPORTED is false), and
// both modules share the routines.

// A fortranConstant is a constant; of a handle, with its type.
type fortranConstant struct {
	name, handle string
	value        int64
}

// fortranConstants returns those of C's constants that are numbers in Fortran, but for the tools interface's.
func fortranConstants() []fortranConstant {
	all := []fortranConstant{{name: "MPI_STATUS_SIZE", value: 8}, {name: "MPI_SOURCE", value: 1}, {name: "MPI_TAG", value: 2}, {name: "MPI_ERROR", value: 3}}
	byName := map[string]fortranConstant{}
	for _, c := range api.Constants() {
		v := fortranConstant{name: c.Name, handle: c.Type}
		if other, ok := byName[c.Value]; ok { // another name for it
			v.handle, v.value = other.handle, other.value
		} else {
			value, err := strconv.ParseInt(c.Value, 0, 64)
			if err != nil || strings.HasPrefix(c.Name, "MPI_T_") && !strings.Contains(c.Name, "_ERR_") || strings.HasPrefix(c.Name, "MPI_F_") {
				continue // an address, or a value of C's only
			}
			v.value = value
		}
		if v.handle == "int" || v.handle == "MPI_Offset" {
			v.handle = ""
		}
		if strings.HasPrefix(v.name, "MPI_MAX_") {
			v.value-- // texts have no end
		}
		byName[v.name] = v
		all = append(all, v)
	}
	return all
}

// kinds are the kinds of integers, and how many digits they have at least.
var kinds = []struct {
	name   string
	digits int
}{{"ADDRESS", 18}, {"COUNT", 18}, {"OFFSET", 18}, {"INTEGER", 9}}

// specials are the constants that are told by their addresses, and variables in a common block each, with their type but for statuses.
var specials = []struct{ name, kind, dims string }{
	{"BOTTOM", "INTEGER", ""}, {"IN_PLACE", "INTEGER", ""}, {"BUFFER_AUTOMATIC", "INTEGER", ""},
	{"UNWEIGHTED", "INTEGER", "(1)"}, {"WEIGHTS_EMPTY", "INTEGER", "(1)"}, {"ERRCODES_IGNORE", "INTEGER", "(1)"},
	{"ARGV_NULL", "CHARACTER", "(1)"}, {"ARGVS_NULL", "CHARACTER", "(1,1)"},
	{"STATUS_IGNORE", "", ""}, {"STATUSES_IGNORE", "", "(1)"},
}

// noFunctions are the functions of keys that copy nothing, copy, and delete nothing.
var noFunctions = []string{"NULL_COPY_FN", "DUP_FN", "NULL_DELETE_FN"}

// writeInclude writes mpif.h, in lines that are valid in fixed and in free form.
func writeInclude(out *bytes.Buffer, _ *surface) {
	fmt.Fprintf(out, "! %s\n! Constants of the standard ABI in Fortran (MPI-5.0, chapter 19).\n\n", marker)
	line := func(format string, args ...any) { fmt.Fprintf(out, "      "+format+"\n", args...) }
	for _, kind := range kinds {
		line("INTEGER MPI_%s_KIND", kind.name)
		line("PARAMETER (MPI_%s_KIND=SELECTED_INT_KIND(%d))", kind.name, kind.digits)
	}
	for _, name := range []string{"MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"} {
		line("LOGICAL %s", name)
		line("PARAMETER (%s=.FALSE.)", name)
	}
	for _, c := range fortranConstants() {
		if c.name == "MPI_DISPLACEMENT_CURRENT" {
			line("INTEGER(KIND=MPI_OFFSET_KIND) %s", c.name)
		} else {
			line("INTEGER %s", c.name)
		}
		line("PARAMETER (%s=%d)", c.name, c.value)
	}
	for _, s := range specials {
		switch s.name {
		case "STATUS_IGNORE":
			line("INTEGER MPI_STATUS_IGNORE(MPI_STATUS_SIZE)")
		case "STATUSES_IGNORE":
			line("INTEGER MPI_STATUSES_IGNORE(MPI_STATUS_SIZE,1)")
		default:
			line("%s MPI_%s%s", s.kind, s.name, s.dims)
		}
		line("COMMON /MPI_FORTRAN_%[1]s/ MPI_%[1]s", s.name)
		line("SAVE /MPI_FORTRAN_%s/", s.name)
	}
	for _, object := range []string{"", "COMM_", "TYPE_", "WIN_"} {
		for _, f := range noFunctions {
			line("EXTERNAL MPI_%s%s", object, f)
		}
	}
	for _, p := range []string{"", "P"} {
		for _, f := range []string{"WTIME", "WTICK"} {
			line("DOUBLE PRECISION %sMPI_%s", p, f)
			line("EXTERNAL %sMPI_%s", p, f)
		}
		for _, f := range []string{"ADD", "DIFF"} {
			line("INTEGER(KIND=MPI_ADDRESS_KIND) %sMPI_AINT_%s", p, f)
			line("EXTERNAL %sMPI_AINT_%s", p, f)
		}
	}
}

// logicals are the parameters that are integers in C and logical in Fortran.
var logicals = []string{"flag", "reorder", "commute", "periods", "remain_dims", "high", "weighted", "is_set"}

// A module is how one of the modules declares parameters.
type module struct{ isF08 bool }

// declaration returns the type of a parameter, and the dimensions that follow its name. A choice buffer has the type "".
func (m module) declaration(f api.Function, p api.Param) (kind, dims string) {
	k := p.Kind
	isOld := strings.HasPrefix(f.Name, "MPI_Attr_") || strings.HasPrefix(f.Name, "MPI_Keyval_")
	switch {
	case k.Base == "statuses" && !m.isF08:
		return "integer", "(MPI_STATUS_SIZE, *)"
	case k.Base == "status" && !m.isF08:
		return "integer", "(MPI_STATUS_SIZE)"
	case k.Base == "statuses":
		dims = "(*)"
	case k.Passing == "[3]":
		dims = "(3, *)"
	case strings.HasPrefix(k.Passing, "[") && k.Base != "char":
		dims = "(*)"
	}
	switch {
	case isCallback(k) && m.isF08:
		return "procedure(" + k.CType(false) + ")", ""
	case isCallback(k):
		return "external", ""
	case givesPointer(p) && m.isF08:
		return "type(c_ptr)", ""
	case p.Name == "baseptr":
		return "integer(MPI_ADDRESS_KIND)", ""
	case (p.Name == "extra_state" || p.Name == "attribute_val") && !isOld:
		return "integer(MPI_ADDRESS_KIND)", ""
	case p.Name == "extra_state" || p.Name == "attribute_val":
		return "integer", ""
	case k.Base == "void":
		return "", ""
	case k.Base == "char":
		return "character(len=*)", ""
	case k.Base == "status" || k.Base == "statuses":
		return "type(MPI_Status)", dims
	case k.IsHandle() && m.isF08:
		return "type(" + k.CType(false) + ")", dims
	case k.Base == "int" && slices.Contains(logicals, p.Name):
		return "logical", dims
	}
	switch k.CType(f.Large()) {
	case "MPI_Count":
		return "integer(MPI_COUNT_KIND)", dims
	case "MPI_Aint":
		return "integer(MPI_ADDRESS_KIND)", dims
	case "MPI_Offset":
		return "integer(MPI_OFFSET_KIND)", dims
	}
	return "integer", dims
}

// parameters are those that f has in Fortran, but for the error. A program's arguments are none of them.
func parameters(f api.Function) []api.Param {
	return slices.DeleteFunc(slices.Clone(f.Params), func(p api.Param) bool { return p.Name == "argc" || p.Name == "argv" })
}

// types are the types of f's parameters, by which calls are told apart.
func (m module) types(f api.Function) (all []string) {
	for _, p := range parameters(f) {
		kind, dims := m.declaration(f, p)
		kind = strings.NewReplacer("MPI_COUNT_KIND", "8", "MPI_ADDRESS_KIND", "8", "MPI_OFFSET_KIND", "8").Replace(kind)
		all = append(all, kind+dims)
	}
	return all
}

// writeInterface writes the interface of a routine under a name. One without arguments for C has its error only.
func (m module) writeInterface(out *bytes.Buffer, f api.Function, name string) {
	var names []string
	for _, p := range parameters(f) {
		names = append(names, p.Name)
	}
	fmt.Fprintf(out, "    subroutine %s(%s)\n      import\n", name, wrapped(append(names, "ierror")))
	for _, p := range parameters(f) {
		kind, dims := m.declaration(f, p)
		if strings.HasSuffix(name, "_cptr") && givesPointer(p) {
			kind = "type(c_ptr)"
		}
		if kind == "" {
			writeBuffer(out, p.Name)
			continue
		}
		if !isCallback(p.Kind) && (p.Kind.Passing == "" || p.Kind.Passing[0] == '&' || p.Kind.Passing == "[]") {
			kind += ", intent(in)"
		}
		fmt.Fprintf(out, "      %s :: %s%s\n", kind, p.Name, dims)
	}
	kind := "integer"
	if m.isF08 {
		kind += ", optional"
	}
	fmt.Fprintf(out, "      %s, intent(out) :: ierror\n    end subroutine\n", kind)
}

// writeBuffer declares a choice buffer, of any type and rank. It is a target: gfortran takes others to be of no use to MPI when the
// call has returned.
func writeBuffer(out *bytes.Buffer, name string) {
	fmt.Fprintf(out, "      !GCC$ attributes no_arg_check :: %[1]s\n      !DEC$ attributes no_arg_check :: %[1]s\n      !DIR$ ignore_tkr %[1]s\n"+
		"      type(*), target :: %[1]s(*)\n", name)
}

// wrapped joins names in lines that are not too long.
func wrapped(names []string) string {
	var text strings.Builder
	for i, name := range names {
		if i > 0 {
			text.WriteString(", ")
		}
		if i%5 == 4 {
			text.WriteString("&\n        ")
		}
		text.WriteString(name)
	}
	return text.String()
}

// declared are the functions that modules have interfaces of: those that have routines, but for MPI_Pcontrol and those that are functions in Fortran.
func declared(s *surface) []api.Function {
	return slices.DeleteFunc(slices.Clone(s.all), func(f api.Function) bool {
		return !isInFortran(f) || f.Result != (api.Kind{Base: "error"}) || f.Name == "MPI_Pcontrol" || slices.Contains(unwritten, strings.TrimSuffix(f.Name, "_c"))
	})
}

// writeModule writes the module mpi.
func writeModule(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "! %s\n! The module mpi (MPI-5.0, section 19.1.3).\n\nmodule mpi\n  use, intrinsic :: iso_c_binding, only: c_ptr\n  implicit none\n  include 'mpif.h'\n\n", marker)
	for _, f := range declared(s) {
		if f.Large() {
			continue
		}
		generic := ""
		if isGeneric := slices.ContainsFunc(f.Params, func(p api.Param) bool { return p.Name == "baseptr" }); isGeneric {
			generic = " " + f.Name
		}
		fmt.Fprintf(out, "  interface%s\n", generic)
		module{}.writeInterface(out, f, f.Name)
		if generic != "" {
			module{}.writeInterface(out, f, f.Name+"_cptr")
		}
		out.WriteString("  end interface\n")
	}
	out.WriteString("end module\n")
}

// handlesInFortran are the types of handles.
var handlesInFortran = slices.DeleteFunc(slices.Clone(handles), func(h string) bool { return strings.HasPrefix(h, "T_") })

// writeModule08 writes the module mpi_f08. Its handles and statuses are those of the module mpi with types, so they share routines.
func writeModule08(out *bytes.Buffer, s *surface) {
	fmt.Fprintf(out, "! %s\n! The module mpi_f08 (MPI-5.0, section 19.1.2).\n\nmodule mpi_f08\n  use, intrinsic :: iso_c_binding, only: c_ptr\n  implicit none\n", marker)
	for _, h := range handlesInFortran {
		fmt.Fprintf(out, "  private :: are_equal_%[1]s, are_unequal_%[1]s\n", h)
	}
	for _, k := range kinds {
		fmt.Fprintf(out, "  integer, parameter :: MPI_%s_KIND = selected_int_kind(%d)\n", k.name, k.digits)
	}
	out.WriteString("  logical, parameter :: MPI_SUBARRAYS_SUPPORTED = .false., MPI_ASYNC_PROTECTS_NONBLOCKING = .false.\n")
	for _, h := range handlesInFortran {
		fmt.Fprintf(out, "  type, bind(C) :: MPI_%s\n    integer :: MPI_VAL\n  end type\n", h)
	}
	out.WriteString("  type, bind(C) :: MPI_Status\n    integer :: MPI_SOURCE, MPI_TAG, MPI_ERROR\n    integer, private :: internal(5)\n  end type\n")
	for _, c := range fortranConstants() {
		switch {
		case c.name == "MPI_DISPLACEMENT_CURRENT":
			fmt.Fprintf(out, "  integer(MPI_OFFSET_KIND), parameter :: %s = %d\n", c.name, c.value)
		case c.handle != "":
			fmt.Fprintf(out, "  type(%[2]s), parameter :: %[1]s = %[2]s(%[3]d)\n", c.name, c.handle, c.value)
		default:
			fmt.Fprintf(out, "  integer, parameter :: %s = %d\n", c.name, c.value)
		}
	}
	for _, s := range specials {
		kind := s.kind
		if kind == "" {
			kind = "type(MPI_Status)"
		}
		fmt.Fprintf(out, "  %[1]s :: MPI_%[2]s%[3]s\n  common /MPI_FORTRAN_%[2]s/ MPI_%[2]s\n  save /MPI_FORTRAN_%[2]s/\n", strings.ToLower(kind), s.name, s.dims)
	}
	writeCallbackInterfaces(out)
	writeFunctions08(out)
	writeRoutines08(out, s)
	writeProcedures08(out)
}

// writeCallbackInterfaces declares the program's functions, and those of the library that stand for some.
func writeCallbackInterfaces(out *bytes.Buffer) {
	out.WriteString("\n  abstract interface\n")
	for _, c := range []struct{ suffix, kind string }{{"", "integer"}, {"_c", "integer(MPI_COUNT_KIND)"}} {
		fmt.Fprintf(out, "    subroutine MPI_User_function%s(invec, inoutvec, len, datatype)\n      import\n      type(c_ptr), value :: invec, inoutvec\n"+
			"      %s :: len\n      type(MPI_Datatype) :: datatype\n    end subroutine\n", c.suffix, c.kind)
	}
	for _, h := range []string{"Comm", "File", "Session", "Win"} {
		fmt.Fprintf(out, "    subroutine MPI_%[1]s_errhandler_function(handle, error_code)\n      import\n      type(MPI_%[1]s) :: handle\n      integer :: error_code\n    end subroutine\n", h)
	}
	objects := []struct{ name, handle string }{{"Comm", "Comm"}, {"Type", "Datatype"}, {"Win", "Win"}}
	for _, o := range objects {
		writeAttributeFunctions(out, o.handle, "MPI_"+o.name+"_copy_attr_function", "MPI_"+o.name+"_delete_attr_function")
	}
	out.WriteString("  end interface\n\n  interface\n")
	for _, o := range objects {
		name := "MPI_" + strings.ToUpper(o.name) + "_"
		writeAttributeFunctions(out, o.handle, name+"NULL_COPY_FN", name+"NULL_DELETE_FN")
		writeAttributeFunctions(out, o.handle, name+"DUP_FN", "")
	}
	out.WriteString("  end interface\n")
}

// writeAttributeFunctions declares a function that copies an attribute, and one that deletes it, unless that has no name.
func writeAttributeFunctions(out *bytes.Buffer, handle, copies, deletes string) {
	fmt.Fprintf(out, "    subroutine %s(handle, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)\n      import\n      type(MPI_%s) :: handle\n"+
		"      integer :: keyval, ierror\n      integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out\n      logical :: flag\n    end subroutine\n", copies, handle)
	if deletes != "" {
		fmt.Fprintf(out, "    subroutine %s(handle, keyval, attribute_val, extra_state, ierror)\n      import\n      type(MPI_%s) :: handle\n"+
			"      integer :: keyval, ierror\n      integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state\n    end subroutine\n", deletes, handle)
	}
}

// writeFunctions08 declares what returns a value, or no error.
func writeFunctions08(out *bytes.Buffer) {
	for _, p := range []string{"", "P"} {
		for _, f := range []string{"Wtime", "Wtick"} {
			fmt.Fprintf(out, "\n  interface %[1]sMPI_%[2]s\n    function %[1]sMPI_%[2]s_f08() result(seconds)\n      double precision :: seconds\n    end function\n  end interface\n", p, f)
		}
		for _, f := range []string{"add", "diff"} {
			fmt.Fprintf(out, "\n  interface %[1]sMPI_Aint_%[2]s\n    function %[1]sMPI_Aint_%[2]s_f08(a, b) result(c)\n      import\n"+
				"      integer(MPI_ADDRESS_KIND), intent(in) :: a, b\n      integer(MPI_ADDRESS_KIND) :: c\n    end function\n  end interface\n", p, f)
		}
		fmt.Fprintf(out, "\n  interface %[1]sMPI_Pcontrol\n    subroutine %[1]sMPI_Pcontrol_f08(level)\n      integer, intent(in) :: level\n    end subroutine\n  end interface\n", p)
		fmt.Fprintf(out, "\n  interface %[1]sMPI_F_sync_reg\n    subroutine %[1]sMPI_F_sync_reg_f08(buf)\n", p)
		writeBuffer(out, "buf")
		out.WriteString("    end subroutine\n  end interface\n")
	}
}

// writeRoutines08 declares all routines, those with large counts under the names of the others where a call tells which is meant.
func writeRoutines08(out *bytes.Buffer, s *surface) {
	m := module{isF08: true}
	all := map[string]api.Function{}
	for _, f := range declared(s) {
		all[f.Name] = f
	}
	for _, f := range declared(s) {
		if f.Large() && f.Name != "MPI_Op_create_c" || strings.HasPrefix(f.Name, "MPI_Attr_") || strings.HasPrefix(f.Name, "MPI_Keyval_") {
			continue
		}
		variants := []api.Function{f}
		if large, ok := all[f.Name+"_c"]; ok && f.Name != "MPI_Op_create" && !slices.Equal(m.types(f), m.types(large)) {
			variants = append(variants, large)
		}
		for _, p := range []string{"", "P"} {
			fmt.Fprintf(out, "\n  interface %s%s\n", p, f.Name)
			for _, v := range variants {
				name := p + v.Name
				if slices.ContainsFunc(v.Params, givesPointer) {
					name += "_cptr"
				}
				m.writeInterface(out, v, name+"_f08")
			}
			out.WriteString("  end interface\n")
		}
	}
}

// writeProcedures08 writes what is in Fortran: comparisons of handles, and statuses in the form of the module mpi.
func writeProcedures08(out *bytes.Buffer) {
	for _, o := range []struct{ operator, name string }{{"==", "equal"}, {"/=", "unequal"}} {
		fmt.Fprintf(out, "\n  interface operator(%s)\n", o.operator)
		for _, h := range handlesInFortran {
			fmt.Fprintf(out, "    module procedure are_%s_%s\n", o.name, h)
		}
		out.WriteString("  end interface\n")
	}
	out.WriteString("\ncontains\n")
	for _, o := range []struct{ operator, name string }{{"==", "equal"}, {"/=", "unequal"}} {
		for _, h := range handlesInFortran {
			fmt.Fprintf(out, "\n  elemental logical function are_%[1]s_%[2]s(a, b) result(is)\n    type(MPI_%[2]s), intent(in) :: a, b\n    is = a%%MPI_VAL %[3]s b%%MPI_VAL\n  end function\n", o.name, h, o.operator)
		}
	}
	out.WriteString(`
  subroutine MPI_Status_f082f(f08_status, f_status, ierror)
    type(MPI_Status), intent(in) :: f08_status
    integer, intent(out) :: f_status(MPI_STATUS_SIZE)
    integer, optional, intent(out) :: ierror
    f_status = transfer(f08_status, f_status)
    if (present(ierror)) ierror = MPI_SUCCESS
  end subroutine

  subroutine MPI_Status_f2f08(f_status, f08_status, ierror)
    integer, intent(in) :: f_status(MPI_STATUS_SIZE)
    type(MPI_Status), intent(out) :: f08_status
    integer, optional, intent(out) :: ierror
    f08_status = transfer(f_status, f08_status)
    if (present(ierror)) ierror = MPI_SUCCESS
  end subroutine
end module
`)
}
