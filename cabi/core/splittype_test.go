package core

import "testing"

// What one process shares, by each type of a split.
func TestCommSplitType(t *testing.T) {
	joined()
	var info, named uintptr
	check(t, "GetHwResourceInfo", GetHwResourceInfo(address(&info)), success)
	hardware, _ := infos.Get(info)
	if value, ok := hardware.Get(resourceNode); !ok || value != "true" {
		t.Errorf("the node is %q, %v", value, ok)
	}
	check(t, "InfoCreate", InfoCreate(address(&named)), success)
	asked, _ := infos.Get(named)
	for _, c := range []struct {
		name string
		kind int32
		info uintptr
		some bool
	}{
		{"", commTypeShared, infoNull, true},
		{"", undefined, infoNull, false},
		{"", commTypeHWGuided, infoNull, false},
		{"another", commTypeHWGuided, named, false},
		{resourceNode, commTypeHWGuided, named, true},
		{resourceSite, commTypeResourceGuided, named, true},
		{resourceShared, commTypeResourceGuided, named, true},
		{resourceNode, commTypeHWUnguided, named, false},
	} {
		asked.Set(resourceKey, c.name)
		made := commSelf
		check(t, c.name, CommSplitType(commWorld, c.kind, 0, c.info, address(&made)), success)
		if (made != commNull) != c.some || made == commSelf {
			t.Errorf("type %d, %q: the communicator is %#x", c.kind, c.name, made)
		}
		if c.some {
			check(t, "CommFree", CommFree(address(&made)), success)
		}
	}
	made := commSelf
	check(t, "no such type", CommSplitType(commWorld, 9, 0, infoNull, address(&made)), errArg)
	check(t, "no info", CommSplitType(commWorld, commTypeHWGuided, 0, 99, address(&made)), errInfo)
}
