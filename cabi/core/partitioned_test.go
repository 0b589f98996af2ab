package core

import "testing"

// parts makes both ends of a transfer of the process to itself: of two partitions of two numbers at out, and of four of one at in.
func parts(t *testing.T, out, in *[4]int32, tag int32) (send, receive uintptr) {
	t.Helper()
	var requests [2]uintptr
	check(t, "PsendInit", PsendInit(address(out), 2, 2, typeInt, 0, tag, commWorld, infoNull, address(&requests[0])), success)
	check(t, "PrecvInit", PrecvInit(address(in), 4, 1, typeInt, 0, tag, commWorld, infoNull, address(&requests[1])), success)
	return requests[0], requests[1]
}

// arrives waits until a partition has arrived.
func arrives(t *testing.T, receive uintptr, partition int32) {
	t.Helper()
	var flag int32
	for flag == 0 {
		if Parrived(receive, partition, address(&flag)) != success {
			t.Fatalf("Parrived of partition %d fails", partition)
		}
	}
}

// Partitions arrive when they are released, and both requests can be started again, until they are freed.
func TestPartitions(t *testing.T) {
	joined()
	out, in := &[4]int32{}, &[4]int32{}
	send, receive := parts(t, out, in, 61)
	pair := &[2]uintptr{send, receive}
	statuses := &[2]status{}
	var flag int32
	for round := range int32(3) {
		*out, *in = [4]int32{1 + round, 2, 3, 4}, [4]int32{}
		check(t, "Startall", Startall(2, address(pair)), success)
		check(t, "PreadyList", PreadyList(1, address(&[1]int32{1}), send), success)
		arrives(t, receive, 2)
		arrives(t, receive, 3)
		check(t, "Parrived", Parrived(receive, 1, address(&flag)), success)
		if flag != 0 || in[2] != 3 || in[3] != 4 {
			t.Errorf("partition 1 has arrived: %d; received %v", flag, *in)
		}
		check(t, "Testall", Testall(2, address(pair), address(&flag), address(statuses)), success)
		if flag != 0 {
			t.Error("the transfer is complete before all is released")
		}
		check(t, "starting an active send", Start(address(&pair[0])), errRequest)
		check(t, "freeing an active receive", RequestFree(address(&pair[1])), errRequest)
		check(t, "cancelling a send", Cancel(address(&pair[0])), errRequest)
		check(t, "PreadyRange", PreadyRange(0, 0, send), success)
		check(t, "Waitall", Waitall(2, address(pair), address(statuses)), success)
		if *in != *out || *pair != [2]uintptr{send, receive} || statuses[1].source != 0 || statuses[1].tag != 61 || statuses[1].low != 16 {
			t.Errorf("received %v with %+v, requests %#x", *in, statuses[1], *pair)
		}
	}
	check(t, "Wait for an inactive request", Wait(address(&pair[1]), address(&statuses[1])), success)
	check(t, "Parrived of an inactive request", Parrived(receive, 1, address(&flag)), success)
	if statuses[1].source != anySource || flag != 1 {
		t.Errorf("%+v, arrived %d", statuses[1], flag)
	}
	check(t, "RequestFree", RequestFree(address(&pair[0])), success)
	check(t, "RequestFree", RequestFree(address(&pair[1])), success)
	if *pair != [2]uintptr{requestNull, requestNull} {
		t.Errorf("freed %#x", *pair)
	}
}

// A transfer stays active until its completion was returned, and is waited for among others.
func TestPartitionedAmongOthers(t *testing.T) {
	joined()
	out, in, x := &[4]int32{1, 2, 3, 4}, &[4]int32{}, new(int32)
	send, receive := parts(t, out, in, 62)
	all := &[4]uintptr{send, receive, requestNull}
	var index, flag int32
	st := new(status)
	check(t, "Startall", Startall(2, address(all)), success)
	check(t, "Irecv", Irecv(address(x), 1, typeInt, 0, 63, commWorld, address(&all[3])), success)
	check(t, "Testany", Testany(4, address(all), address(&index), address(&flag), 0), success)
	if flag != 0 || index != undefined {
		t.Errorf("request %d is complete: %d", index, flag)
	}
	check(t, "PreadyRange", PreadyRange(0, 1, send), success)
	check(t, "Waitany", Waitany(2, address(&all[1]), address(&index), address(st)), success)
	if index != 0 || st.low != 16 || *in != *out {
		t.Errorf("request %d is complete with %+v, received %v", index, *st, *in)
	}
	for flag = 0; flag == 0; {
		check(t, "RequestGetStatus", RequestGetStatus(send, address(&flag), address(st)), success)
	}
	if st.tag != 62 {
		t.Errorf("the send has %+v", *st)
	}
	check(t, "starting a complete send", Start(address(all)), errRequest)
	check(t, "freeing a complete send", RequestFree(address(all)), errRequest)
	check(t, "Waitany", Waitany(4, address(all), address(&index), 0), success)
	if index != 0 {
		t.Errorf("request %d is complete", index)
	}
	check(t, "Start", Start(address(all)), success)
	check(t, "Cancel", Cancel(address(&all[3])), success)
	check(t, "Wait", Wait(address(&all[3]), 0), success)
	check(t, "PreadyRange", PreadyRange(0, 1, send), success)
	check(t, "Start", Start(address(&all[1])), success)
	check(t, "Waitall", Waitall(2, address(all), 0), success)
	check(t, "RequestFree", RequestFree(address(&all[0])), success)
	check(t, "RequestFree", RequestFree(address(&all[1])), success)
}

// Mistakes with partitions have the classes of the standard.
func TestPartitionedErrors(t *testing.T) {
	joined()
	out, in := &[4]int32{}, &[4]int32{}
	send, receive := parts(t, out, in, 64)
	var flag int32
	var request uintptr
	check(t, "releasing an inactive send", Pready(0, send), errRequest)
	check(t, "Start", Start(address(&send)), success)
	check(t, "Start", Start(address(&receive)), success)
	check(t, "releasing a receive", Pready(0, receive), errRequest)
	check(t, "releasing no request", Pready(0, requestNull), errRequest)
	check(t, "releasing what is no request", Pready(0, 77), errRequest)
	check(t, "asking a send", Parrived(send, 0, address(&flag)), errRequest)
	check(t, "partition 2", Pready(2, send), errArg)
	check(t, "partitions 1 to 0", PreadyRange(1, 0, send), errArg)
	check(t, "-1 partitions", PreadyList(-1, 0, send), errArg)
	check(t, "partition -1", Parrived(receive, -1, address(&flag)), errArg)
	check(t, "Pready", Pready(0, send), success)
	check(t, "Pready again", Pready(0, send), errRequest)
	check(t, "Pready", Pready(1, send), success)
	check(t, "Wait", Wait(address(&send), 0), success)
	check(t, "Wait", Wait(address(&receive), 0), success)
	check(t, "RequestFree", RequestFree(address(&send)), success)
	check(t, "RequestFree", RequestFree(address(&receive)), success)

	check(t, "no partitions", PsendInit(address(out), 0, 1, typeInt, 0, 1, commWorld, infoNull, address(&request)), errArg)
	check(t, "too many elements", PsendInit(address(out), 4, 1<<62, typeInt, 0, 1, commWorld, infoNull, address(&request)), errCount)
	check(t, "-1 elements", PsendInit(address(out), 4, -1, typeInt, 0, 1, commWorld, infoNull, address(&request)), errCount)
	check(t, "any source", PrecvInit(address(in), 1, 4, typeInt, anySource, 1, commWorld, infoNull, address(&request)), errRank)
	check(t, "any tag", PrecvInit(address(in), 1, 4, typeInt, 0, anyTag, commWorld, infoNull, address(&request)), errTag)
	check(t, "no type", PrecvInit(address(in), 1, 4, datatypeNull, 0, 1, commWorld, infoNull, address(&request)), errType)
	check(t, "no info", PrecvInit(address(in), 1, 4, typeInt, 0, 1, commWorld, 77, address(&request)), errInfo)
	check(t, "no communicator", PsendInit(address(out), 1, 4, typeInt, 0, 1, commNull, infoNull, address(&request)), errComm)

	check(t, "PsendInit", PsendInit(address(out), 1, 4, typeInt, 0, 65, commWorld, infoNull, address(&send)), success)
	check(t, "PrecvInit", PrecvInit(address(in), 1, 3, typeInt, 0, 65, commWorld, infoNull, address(&receive)), success)
	check(t, "Start", Start(address(&send)), success)
	check(t, "Start", Start(address(&receive)), success)
	check(t, "Pready", Pready(0, send), success)
	check(t, "Wait for more than there is room for", Wait(address(&receive), 0), errTruncate)
	check(t, "RequestFree", RequestFree(address(&receive)), success)
}
