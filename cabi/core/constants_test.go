package core

import (
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// The constants are the standard's.
func TestConstants(t *testing.T) {
	values := map[string]int64{}
	for _, c := range api.Constants() {
		text := strings.TrimSuffix(strings.TrimPrefix(c.Value, "((int*)"), ")") // of an address
		if v, err := strconv.ParseInt(text, 0, 64); err == nil {
			values[c.Name] = v
		}
	}
	for name, ours := range map[string]int64{
		"MPI_COMM_NULL": int64(commNull), "MPI_COMM_WORLD": int64(commWorld), "MPI_COMM_SELF": int64(commSelf),
		"MPI_TAG_UB": int64(attributeTagUB), "MPI_IO": int64(attributeIO), "MPI_HOST": int64(attributeHost), "MPI_WTIME_IS_GLOBAL": int64(attributeGlobal),
		"MPI_APPNUM": int64(attributeAppNum), "MPI_LASTUSEDCODE": int64(attributeLastCode), "MPI_UNIVERSE_SIZE": int64(attributeUniverse),
		"MPI_GROUP_NULL": int64(groupNull), "MPI_GROUP_EMPTY": int64(groupEmpty), "MPI_ERR_GROUP": int64(errGroup),
		"MPI_MESSAGE_NULL": int64(messageNull), "MPI_MESSAGE_NO_PROC": int64(messageNoProc),
		"MPI_REQUEST_NULL": int64(requestNull), "MPI_OP_NULL": int64(opNull),
		"MPI_ERRHANDLER_NULL": int64(errhandlerNull), "MPI_ERRORS_ARE_FATAL": int64(errorsAreFatal), "MPI_ERRORS_RETURN": int64(errorsReturn),
		"MPI_INFO_NULL": int64(infoNull), "MPI_INFO_ENV": int64(infoEnv), "MPI_MAX_INFO_KEY": maxInfoKey + 1, "MPI_MAX_INFO_VAL": maxInfoValue,
		"MPI_ERR_INFO": int64(errInfo), "MPI_ERR_INFO_KEY": int64(errInfoKey), "MPI_ERR_INFO_NOKEY": int64(errInfoNoKey), "MPI_ERR_INFO_VALUE": int64(errInfoValue),
		"MPI_SESSION_NULL": int64(sessionNull), "MPI_ERR_SESSION": int64(errSession), "MPI_MAX_PSET_NAME_LEN": maxPsetName,
		"MPI_UNDEFINED": int64(undefined), "MPI_THREAD_MULTIPLE": int64(threadMultiple), "MPI_COMM_TYPE_SHARED": int64(commTypeShared),
		"MPI_COMM_TYPE_HW_UNGUIDED": int64(commTypeHWUnguided), "MPI_COMM_TYPE_HW_GUIDED": int64(commTypeHWGuided), "MPI_COMM_TYPE_RESOURCE_GUIDED": int64(commTypeResourceGuided),
		"MPI_MAX_PROCESSOR_NAME": maxProcessorName, "MPI_MAX_ERROR_STRING": maxErrorString, "MPI_MAX_LIBRARY_VERSION_STRING": maxLibraryText,
		"MPI_IDENT": int64(identical), "MPI_CONGRUENT": int64(congruent), "MPI_SIMILAR": int64(similar), "MPI_UNEQUAL": int64(unequal),
		"MPI_MAX_OBJECT_NAME": maxObjectName, "MPI_MAX_STRINGTAG_LEN": maxStringTag,
		"MPI_CART": int64(topologyCart), "MPI_GRAPH": int64(topologyGraph), "MPI_DIST_GRAPH": int64(topologyDistGraph),
		"MPI_UNWEIGHTED": int64(unweighted), "MPI_WEIGHTS_EMPTY": int64(weightsEmpty),
		"MPI_ANY_SOURCE": int64(anySource), "MPI_ANY_TAG": int64(anyTag), "MPI_PROC_NULL": int64(procNull), "MPI_ROOT": int64(rootHere),
		"MPI_SUCCESS": int64(success), "MPI_ERR_BUFFER": int64(errBuffer), "MPI_ERR_COUNT": int64(errCount), "MPI_ERR_TYPE": int64(errType), "MPI_ERR_TAG": int64(errTag),
		"MPI_ERR_COMM": int64(errComm), "MPI_ERR_RANK": int64(errRank), "MPI_ERR_REQUEST": int64(errRequest), "MPI_ERR_ROOT": int64(errRoot), "MPI_ERR_OP": int64(errOp),
		"MPI_ERR_TOPOLOGY": int64(errTopology), "MPI_ERR_DIMS": int64(errDims), "MPI_ERR_ARG": int64(errArg), "MPI_ERR_UNKNOWN": int64(errUnknown),
		"MPI_ERR_TRUNCATE": int64(errTruncate), "MPI_ERR_OTHER": int64(errOther), "MPI_ERR_PENDING": int64(errPending), "MPI_ERR_IN_STATUS": int64(errInStatus),
		"MPI_ERR_BASE": int64(errBase), "MPI_ERR_NO_MEM": int64(errNoMem), "MPI_ERR_CONVERSION": int64(errConversion), "MPI_ERR_NAME": int64(errName), "MPI_ERR_KEYVAL": int64(errKeyval), "MPI_ERR_PORT": int64(errPort), "MPI_ERR_SERVICE": int64(errService), "MPI_ERR_PROC_ABORTED": int64(errAborted), "MPI_ERR_ERRHANDLER": int64(errHandler), "MPI_ERR_ABI": int64(errABI),
	} {
		if want, ok := values[name]; !ok || ours != want {
			t.Errorf("%s is %d, the standard has %d (%v)", name, ours, want, ok)
		}
	}
}

// Special ranks and tags are translated both ways, and other negative ones are valid nowhere.
func TestRanks(t *testing.T) {
	for ours, theirs := range map[int32]int{anySource: mpilib.AnySource, procNull: mpilib.ProcNull, 0: 0, 9: 9} {
		if rankOf(ours) != theirs || sourceFrom(theirs) != ours {
			t.Errorf("rank %d is %d, and back %d", ours, rankOf(ours), sourceFrom(theirs))
		}
	}
	for ours, theirs := range map[int32]int{anyTag: mpilib.AnyTag, 0: 0, 7: 7} {
		if tagOf(ours) != theirs || tagFrom(theirs) != ours {
			t.Errorf("tag %d is %d, and back %d", ours, tagOf(ours), tagFrom(theirs))
		}
	}
	if rankOf(rootHere) != mpilib.Root || rankOf(-2) != noRank || tagOf(-1) != noRank {
		t.Error(rankOf(rootHere), rankOf(-2), tagOf(-1))
	}
}
