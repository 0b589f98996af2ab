package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/mpilib"
)

var infos handles.Table[*mpilib.Info]

func init() { infos.Put(infoEnv, new(mpilib.Info)) } // what MPI_INFO_ENV has is the implementation's choice

// infoOf returns the info of a handle, nil for MPI_INFO_NULL.
func infoOf(handle uintptr) (*mpilib.Info, error) {
	if handle == infoNull {
		return nil, nil
	}
	info, ok := infos.Get(handle)
	if !ok {
		return nil, failure(errInfo, "%#x is no info", handle)
	}
	return info, nil
}

// onInfo makes a call on an info, which MPI_INFO_NULL is not.
func onInfo(call string, handle uintptr, f func(*mpilib.Info) error) int32 {
	info, err := infoOf(handle)
	if err == nil && info == nil {
		err = failure(errInfo, "MPI_INFO_NULL has no keys")
	}
	if err == nil {
		err = f(info)
	}
	return onWorld(call, err)
}

// keyOf reads a key.
func keyOf(address uintptr) (string, error) {
	key, err := loadText(address, maxInfoKey, errInfoKey)
	if err == nil && key == "" {
		err = failure(errInfoKey, "the key is empty")
	}
	return key, err
}

// InfoCreate makes an empty info. It may be called before Init, like all functions here
// (MPI-5.0, section 11.4.1).
func InfoCreate(info uintptr) int32 {
	store(info, infos.Add(new(mpilib.Info)))
	return success
}

// InfoCreateEnv makes one with what MPI_INFO_ENV has.
func InfoCreateEnv(_ int32, _, info uintptr) int32 { return InfoDup(infoEnv, info) }

// InfoDup copies an info.
func InfoDup(info, newinfo uintptr) int32 {
	return onInfo("MPI_Info_dup", info, func(i *mpilib.Info) error {
		store(newinfo, infos.Add(i.Dup()))
		return nil
	})
}

// InfoFree makes a handle invalid.
func InfoFree(info uintptr) int32 {
	handle := load[uintptr](info)
	return onInfo("MPI_Info_free", handle, func(*mpilib.Info) error {
		if handle < handles.First {
			return failure(errInfo, "MPI_INFO_ENV cannot be freed")
		}
		infos.Remove(handle)
		store(info, infoNull)
		return nil
	})
}

// InfoSet sets the value of a key.
func InfoSet(info, key, value uintptr) int32 {
	return onInfo("MPI_Info_set", info, func(i *mpilib.Info) error {
		k, err := keyOf(key)
		if err != nil {
			return err
		}
		v, err := loadText(value, maxInfoValue, errInfoValue)
		if err != nil {
			return err
		}
		return i.Set(k, v)
	})
}

// InfoDelete deletes a key, which must be there.
func InfoDelete(info, key uintptr) int32 {
	return onInfo("MPI_Info_delete", info, func(i *mpilib.Info) error {
		k, err := keyOf(key)
		if err == nil && !i.Delete(k) {
			err = failure(errInfoNoKey, "there is no key %q", k)
		}
		return err
	})
}

// lookUp stores whether there is a key, and calls found with its value if there is.
func lookUp(call string, info, key, flag uintptr, found func(value string)) int32 {
	return onInfo(call, info, func(i *mpilib.Info) error {
		k, err := keyOf(key)
		if err != nil {
			return err
		}
		value, ok := i.Get(k)
		if ok {
			found(value)
		}
		store(flag, logicalOf(ok))
		return nil
	})
}

// InfoGet returns a value, cut to valuelen characters (deprecated since MPI-4.0).
func InfoGet(info, key uintptr, valuelen int32, value, flag uintptr) int32 {
	return lookUp("MPI_Info_get", info, key, flag, func(v string) {
		copyText(value, v, max(int(valuelen), 0)+1)
	})
}

// InfoGetValuelen returns the length of a value (deprecated since MPI-4.0).
func InfoGetValuelen(info, key, valuelen, flag uintptr) int32 {
	return lookUp("MPI_Info_get_valuelen", info, key, flag, func(v string) { store(valuelen, int32(len(v))) })
}

// InfoGetString returns a value, cut to what buflen has, and there the bytes that it takes with its
// zero. With buflen 0 it returns these only.
func InfoGetString(info, key, buflen, value, flag uintptr) int32 {
	return lookUp("MPI_Info_get_string", info, key, flag, func(v string) {
		if room := load[int32](buflen); room > 0 {
			copyText(value, v, int(room))
		}
		store(buflen, int32(len(v)+1))
	})
}

// InfoGetNkeys returns the number of keys.
func InfoGetNkeys(info, nkeys uintptr) int32 {
	return onInfo("MPI_Info_get_nkeys", info, func(i *mpilib.Info) error {
		store(nkeys, int32(len(i.Keys())))
		return nil
	})
}

// InfoGetNthkey returns a key.
func InfoGetNthkey(info uintptr, n int32, key uintptr) int32 {
	return onInfo("MPI_Info_get_nthkey", info, func(i *mpilib.Info) error {
		keys := i.Keys()
		if n < 0 || int(n) >= len(keys) {
			return failure(errArg, "there is no key %d of %d", n, len(keys))
		}
		copyText(key, keys[n], maxInfoKey)
		return nil
	})
}
