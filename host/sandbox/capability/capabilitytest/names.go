package capabilitytest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Names is a name server in memory. It is safe for concurrent use, as Lookup is.
type Names struct {
	// Lookup answers with the addresses of a name, which has no dot at its end; none:
	// there is no such name. It is called once for each kind of address.
	Lookup func(name string) []netip.Addr
}

// Resolver returns a resolver that asks it.
func (n *Names) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go n.serve(server) // ends with the client's side
		return client, nil
	}}
}

// serve answers as a server on TCP does: each message has its length before it.
func (n *Names) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := n.answer(query)
		out := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
		if _, err := c.Write(append(out, answer...)); err != nil {
			return
		}
	}
}

// answer makes a message of RFC 1035 for a query with one question.
func (n *Names) answer(query []byte) []byte {
	const header, kindA, kindAAAA = 12, 1, 28
	var labels []string
	i := header
	for query[i] != 0 {
		size := int(query[i])
		labels = append(labels, string(query[i+1:i+1+size]))
		i += 1 + size
	}
	end := i + 5 // the zero, the type, the class
	kind := binary.BigEndian.Uint16(query[i+1:])

	all := n.Lookup(strings.Join(labels, "."))
	var records []byte
	count := uint16(0)
	for _, a := range all {
		if (kind == kindA) != a.Is4() || (kind != kindA && kind != kindAAAA) {
			continue
		}
		count++
		records = append(records, 0xc0, header) // the name of the question
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // of the Internet, for no time
		records = binary.BigEndian.AppendUint16(records, uint16(len(a.AsSlice())))
		records = append(records, a.AsSlice()...)
	}
	out := append([]byte(nil), query[:2]...)
	code := byte(0)
	if len(all) == 0 {
		code = 3 // no such name
	}
	out = append(out, 0x85, 0x80|code, 0, 1)
	out = binary.BigEndian.AppendUint16(out, count)
	out = append(out, 0, 0, 0, 0)
	out = append(out, query[header:end]...)
	return append(out, records...)
}
