//go:build !wasip1

package sdktest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
)

// TestClients runs a guest with client libraries for PostgreSQL and Redis, as they are.
// It is a module of its own, so that the product does not require them.
func TestClients(t *testing.T) {
	t.Parallel()
	h := &Host{}
	for target, serve := range map[string]func(net.Conn){"tcp://db.example.com:5432": postgres, "tcp://cache.example.com:6379": redis} {
		h.AllowNet(target, func() (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				serve(there)
			}()
			return here, nil
		})
	}
	p := program{buildClients(t, ".", "-buildmode=c-shared", "-ldflags=-s -w"), wazero.NewCompilationCache()}
	t.Logf("%d bytes", len(p.module))
	t.Cleanup(func() { p.cache.Close(t.Context()) })
	g := p.load(t, &h).instance(t, t.Output())
	h.begin()
	r := h.item(export(t, g, abi.ExportExecute))
	if r.Outcome != abi.OutcomeOK {
		t.Errorf("%s %s", r.Outcome, r.Message)
	}
	var got []string
	for _, line := range h.Logs() {
		got = append(got, line.String())
	}
	want := "INFO pgx city=Rome\nINFO pgx deadline=true closed=true\nINFO database/sql city=Rome\nINFO redis city=Rome"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// postgres answers simple queries with one row, and pg_sleep never.
func postgres(c net.Conn) {
	in := bufio.NewReader(c)
	message := func(kind string, parts ...any) []byte {
		var body []byte
		for _, part := range parts {
			if s, ok := part.(string); ok {
				body = append(body, s...)
				continue
			}
			body, _ = binary.Append(body, binary.BigEndian, part)
		}
		return append(binary.BigEndian.AppendUint32([]byte(kind), uint32(len(body)+4)), body...)
	}
	receive := func() []byte {
		var size uint32
		if binary.Read(in, binary.BigEndian, &size) != nil || size < 4 {
			return nil
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return nil
		}
		return body
	}
	if hello := receive(); len(hello) < 4 || binary.BigEndian.Uint32(hello) != 3<<16 {
		return // it asks for a query to be cancelled
	}
	ready := message("Z", "I")
	c.Write(append(message("R", uint32(0)), append(append(message("S", "client_encoding\x00UTF8\x00"), message("S", "standard_conforming_strings\x00on\x00")...), ready...)...))
	for {
		kind, err := in.ReadByte()
		body := receive()
		if err != nil || kind != 'Q' {
			return
		}
		switch {
		case strings.Contains(string(body), "pg_sleep"):
			continue
		case strings.Contains(string(body), "select city"):
			c.Write(message("T", uint16(1), "city\x00", uint32(0), uint16(0), uint32(25), int16(-1), int32(-1), uint16(0)))
			c.Write(message("D", uint16(1), uint32(4), "Rome"))
			c.Write(message("C", "SELECT 1\x00"))
		default:
			c.Write(message("I"))
		}
		c.Write(ready)
	}
}

// redis remembers nothing but knows the answers.
func redis(c net.Conn) {
	in := bufio.NewReader(c)
	number := func() int {
		line, _ := in.ReadString('\n')
		n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
		return n
	}
	for {
		count := number()
		var words []string
		for range count {
			word := make([]byte, number()+2)
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			words = append(words, strings.TrimSpace(string(word)))
		}
		if count == 0 {
			return
		}
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			fmt.Fprint(c, "-ERR unknown command\r\n")
		case "GET":
			fmt.Fprint(c, "$4\r\nRome\r\n")
		default:
			fmt.Fprint(c, "+OK\r\n")
		}
	}
}
