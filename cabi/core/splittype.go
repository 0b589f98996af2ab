package core

import "github.com/isthmus-grid/isthmus/mpilib"

// The names of what processes share. The first is the standard's, for what MPI_COMM_TYPE_SHARED stands for.
const (
	resourceShared = "mpi_shared_memory"
	resourceNode   = "isthmus://node"
	resourceSite   = "isthmus://site"
)

// resources are the names that a program may give as the value of resourceKey.
var resources = map[string]mpilib.SplitType{
	resourceShared: mpilib.SplitShared, resourceNode: mpilib.SplitNode, resourceSite: mpilib.SplitSite,
}

const resourceKey = "mpi_hw_resource_type"

// noSplit is the split of a process that gets no communicator.
const noSplit = mpilib.SplitType(mpilib.Undefined)

// CommSplitType splits a communicator by what its processes share (MPI-5.0, section 7.4.2).
func CommSplitType(comm uintptr, splitType, key int32, info, newcomm uintptr) int32 {
	return onComm("MPI_Comm_split_type", comm, func(c *communicator) error {
		hints, err := infoOf(info)
		if err != nil {
			return err
		}
		var split mpilib.SplitType
		switch splitType {
		case commTypeShared:
			split = mpilib.SplitShared
		case commTypeHWGuided, commTypeResourceGuided:
			split = guided(hints)
		case commTypeHWUnguided:
			made, err := c.splitFurther(int(key), hints)
			return c.create(made, err, newcomm)
		case undefined:
			split = noSplit
		default:
			return failure(errArg, "split type %d is not there", splitType)
		}
		made, err := c.SplitType(background, split, int(key), nil)
		return c.create(made, err, newcomm)
	})
}

// guided is the split by the resource that an info names. Where it names none that there is, the
// processes get no communicator.
func guided(info *mpilib.Info) mpilib.SplitType {
	name, _ := info.Get(resourceKey)
	if split, ok := resources[name]; ok {
		return split
	}
	return noSplit
}

// splitFurther splits c at the first level at which it falls into parts, by site or by node, and has
// the info name it; nil if there is none. All processes find the same level: a part as large as c has
// all of them. A process that gives MPI_UNDEFINED makes any part smaller, and calls once as they do.
func (c *communicator) splitFurther(key int, info *mpilib.Info) (*mpilib.Comm, error) {
	for _, name := range []string{resourceSite, resourceNode} {
		made, err := c.SplitType(background, resources[name], key, nil)
		if err != nil {
			return nil, err
		}
		if made.Size() < c.Size() {
			if info == nil {
				return made, nil
			}
			return made, info.Set(resourceKey, name)
		}
		if err := made.Free(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// GetHwResourceInfo returns an info whose keys are the resources that a guided split takes, each true:
// a process stays on its node and site (MPI-5.0, section 9.1).
func GetHwResourceInfo(info uintptr) int32 {
	made, err := mpilib.NewInfo(resourceNode, "true", resourceSite, "true")
	if err == nil {
		store(info, infos.Add(made))
	}
	return onWorld("MPI_Get_hw_resource_info", err)
}
