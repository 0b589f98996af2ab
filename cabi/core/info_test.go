package core

import (
	"strings"
	"testing"
)

// cText is text with a zero, as C has it.
func cText(text string) uintptr {
	b := append([]byte(text), 0)
	return address(&b[0])
}

// goText is what C stored in a buffer.
func goText(buf []byte) string {
	text, _, _ := strings.Cut(string(buf), "\x00")
	return text
}

func TestInfo(t *testing.T) {
	joined()
	var info, copied uintptr
	var n, flag int32
	buf := make([]byte, maxInfoKey)
	check(t, "InfoCreate", InfoCreate(address(&info)), success)
	check(t, "InfoSet", InfoSet(info, cText("host"), cText("there")), success)
	check(t, "InfoSet", InfoSet(info, cText("file"), cText("x")), success)
	check(t, "InfoDup", InfoDup(info, address(&copied)), success)
	check(t, "InfoDelete", InfoDelete(info, cText("host")), success)
	check(t, "deleting what is not there", InfoDelete(info, cText("host")), errInfoNoKey)
	if InfoGetNkeys(info, address(&n)); n != 1 {
		t.Errorf("%d keys after one of two was deleted", n)
	}
	if InfoGetNkeys(copied, address(&n)); n != 2 {
		t.Errorf("the copy has %d keys, want 2", n)
	}
	check(t, "InfoGetNthkey", InfoGetNthkey(copied, 1, address(&buf[0])), success)
	if goText(buf) != "file" {
		t.Errorf("key 1 is %q", goText(buf))
	}
	check(t, "key 2 of 2", InfoGetNthkey(copied, 2, address(&buf[0])), errArg)
	InfoGet(copied, cText("host"), 3, address(&buf[0]), address(&flag))
	if goText(buf) != "the" || flag != 1 {
		t.Errorf("three characters of a value are %q, flag %d", goText(buf), flag)
	}
	InfoGet(copied, cText("none"), 3, address(&buf[0]), address(&flag))
	if flag != 0 {
		t.Errorf("flag %d for a key that is not there", flag)
	}
	if InfoGetValuelen(copied, cText("host"), address(&n), address(&flag)); n != 5 || flag != 1 {
		t.Errorf("a value has %d characters, flag %d", n, flag)
	}
	for _, c := range []struct {
		room int32
		want string
	}{{0, "-"}, {3, "th"}, {6, "there"}, {9, "there"}} {
		buf[0], buf[1], n = '-', 0, c.room
		if InfoGetString(copied, cText("host"), address(&n), address(&buf[0]), address(&flag)); goText(buf) != c.want || n != 6 {
			t.Errorf("with room for %d bytes a value is %q, of %d", c.room, goText(buf), n)
		}
	}
	check(t, "an empty key", InfoSet(info, cText(""), cText("x")), errInfoKey)
	check(t, "a long key", InfoSet(info, cText(strings.Repeat("k", maxInfoKey)), cText("x")), errInfoKey)
	check(t, "the longest key", InfoSet(info, cText(strings.Repeat("k", maxInfoKey-1)), cText("x")), success)
	check(t, "a long value", InfoSet(info, cText("k"), cText(strings.Repeat("v", maxInfoValue))), errInfoValue)
	check(t, "a key at address 0", InfoSet(info, 0, cText("x")), errInfoKey)
	check(t, "InfoFree", InfoFree(address(&info)), success)
	check(t, "freeing it again", InfoFree(address(&info)), errInfo)
	environment := infoEnv
	check(t, "freeing MPI_INFO_ENV", InfoFree(address(&environment)), errInfo)
	check(t, "MPI_INFO_NULL", InfoGetNkeys(info, address(&n)), errInfo)
	check(t, "no info", InfoGetNkeys(77, address(&n)), errInfo)
}

// Hints of a communicator are set by an info, and returned in one.
func TestHints(t *testing.T) {
	joined()
	var info, got, comm uintptr
	var flag int32
	InfoCreate(address(&info))
	InfoSet(info, cText("mpi_assert_no_any_tag"), cText("true"))
	check(t, "CommDupWithInfo", CommDupWithInfo(commSelf, info, address(&comm)), success)
	CommSetErrhandler(comm, errorsReturn)
	check(t, "CommGetInfo", CommGetInfo(comm, address(&got)), success)
	buf, room := make([]byte, 9), int32(9)
	if InfoGetString(got, cText("mpi_assert_no_any_tag"), address(&room), address(&buf[0]), address(&flag)); goText(buf) != "true" {
		t.Errorf("the hint is %q", goText(buf))
	}
	InfoSet(info, cText("mpi_assert_no_any_tag"), cText("false"))
	check(t, "CommSetInfo", CommSetInfo(comm, info), success)
	room = 9
	CommGetInfo(comm, address(&got))
	if InfoGetString(got, cText("mpi_assert_no_any_tag"), address(&room), address(&buf[0]), address(&flag)); goText(buf) != "false" {
		t.Errorf("the hint that was set is %q", goText(buf))
	}
	check(t, "CommSetInfo with MPI_INFO_NULL", CommSetInfo(comm, infoNull), success)
	check(t, "CommSetInfo with no info", CommSetInfo(comm, 77), errInfo)
	CommFree(address(&comm))
}
