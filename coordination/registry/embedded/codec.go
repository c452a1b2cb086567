package embedded

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A stored node is this header and then the node's data: a format byte, the
// version, the sequence counter, czxid, mzxid and mtime, big-endian.
const (
	nodeFormat = 1
	nodeHeader = 1 + 4 + 4 + 8 + 8 + 8
)

func encodeNode(st *state) []byte {
	b := make([]byte, 0, nodeHeader+len(st.data))
	b = append(b, nodeFormat)
	b = binary.BigEndian.AppendUint32(b, uint32(st.version))
	b = binary.BigEndian.AppendUint32(b, uint32(st.sequence))
	b = binary.BigEndian.AppendUint64(b, uint64(st.czxid))
	b = binary.BigEndian.AppendUint64(b, uint64(st.mzxid))
	b = binary.BigEndian.AppendUint64(b, uint64(st.mtime))
	return append(b, st.data...)
}

// decodeNode decodes a stored node. The result does not alias b.
func decodeNode(b []byte) (state, error) {
	if len(b) < nodeHeader {
		return state{}, fmt.Errorf("a node of %d bytes, expected at least %d", len(b), nodeHeader)
	}
	if b[0] != nodeFormat {
		return state{}, fmt.Errorf("a node of format %d, expected %d", b[0], nodeFormat)
	}
	st := state{
		version:  int32(binary.BigEndian.Uint32(b[1:])),
		sequence: int32(binary.BigEndian.Uint32(b[5:])),
		czxid:    int64(binary.BigEndian.Uint64(b[9:])),
		mzxid:    int64(binary.BigEndian.Uint64(b[17:])),
		mtime:    int64(binary.BigEndian.Uint64(b[25:])),
	}
	if st.version < 0 || st.sequence < 0 || st.czxid < 0 || st.mzxid < st.czxid {
		return state{}, fmt.Errorf("a node with version %d, sequence %d, czxid %d, mzxid %d, expected none negative and mzxid not before czxid",
			st.version, st.sequence, st.czxid, st.mzxid)
	}
	if len(b) > nodeHeader {
		st.data = slices.Clone(b[nodeHeader:])
	}
	return st, nil
}
