package zookeeper

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ZooKeeper's numbers for requests, as they are on the wire.
const (
	opCreate      = 1
	opDelete      = 2
	opExists      = 3
	opGetData     = 4
	opSetData     = 5
	opGetACL      = 6
	opSync        = 9
	opPing        = 11
	opGetChildren = 12 // with the parent's status
	opMulti       = 14
	opUnwatch     = 18 // since 3.5
	opAuth        = 100
	opClose       = -11
)

// What opUnwatch removes: a watch on a node's children, on the node, or both.
const (
	watchChildren int32 = 1
	watchData     int32 = 2 // not sent alone
	watchAny      int32 = 3
)

// unwatchNumber is the number of every opUnwatch. The client numbers its own from 1 and ignores answers with a
// number below 0.
const unwatchNumber uint32 = 1<<32 - opUnwatch

// opName names a request by the name under which it is counted.
func opName(op int32) string {
	switch op {
	case opCreate:
		return "create"
	case opDelete:
		return "delete"
	case opExists:
		return "exists"
	case opGetData:
		return "getData"
	case opSetData:
		return "setData"
	case opGetACL:
		return "getACL"
	case opSync:
		return "sync"
	case opPing:
		return "ping"
	case opGetChildren:
		return "getChildren"
	case opMulti:
		return "multi"
	case opUnwatch:
		return "removeWatches"
	case opAuth:
		return "auth"
	case opClose:
		return "close"
	}
	return fmt.Sprintf("op %d", op)
}

// errRefused ends a connection that would make a second session.
var errRefused = errors.New("zookeeper: the session is over")

// wire is a connection as the client sees it. The client writes one whole request at a time, and this is the
// only place to intercept it: here requests are counted, reads set the watches, and requests that must not be
// sent any more are dropped.
type wire struct {
	net.Conn
	in   *bufio.Reader // many answers come in one piece
	link *link
	to   string

	greeted bool          // the first request was written
	sent    time.Duration // when
	limit   *time.Timer   // ends the connection if its first answer does not come
	once    sync.Once
	gone    chan struct{} // closed when nothing more can be read

	// The answer that is being read.
	answered bool     // the first one came
	head     [20]byte // its length and first 16 bytes
	have     int      // how much of head
	rest     int      // what is to come after head
}

// Write sends one request: length, number, kind, and then a path mostly.
func (w *wire) Write(b []byte) (int, error) {
	if !w.greeted {
		return w.greet(b)
	}
	op := int32(binary.BigEndian.Uint32(b[8:]))
	switch op {
	case opMulti:
		if !w.link.admit() {
			return len(b), nil // as if it was lost
		}
	case opExists, opGetData, opGetChildren:
		if n := len(b) - 1; n >= 16 && w.link.watched(op, string(b[16:n])) {
			b = append(b[:n:n], 1)
		}
	}
	w.link.count(op)
	return w.Conn.Write(b)
}

// unwatch sends a request that the client does not know: remove a watch of this session, if there is one. It
// does not wait for the answer. A connection serializes the writes of several goroutines.
func (w *wire) unwatch(path string, what int32) {
	b := make([]byte, 0, 20+len(path))
	b = binary.BigEndian.AppendUint32(b, uint32(16+len(path)))
	b = binary.BigEndian.AppendUint32(b, unwatchNumber)
	b = binary.BigEndian.AppendUint32(b, opUnwatch)
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	b = append(b, path...)
	b = binary.BigEndian.AppendUint32(b, uint32(what))
	w.link.count(opUnwatch)
	if _, err := w.Conn.Write(b); err != nil {
		_ = w.Conn.Close() // half a request may have been written
	}
}

// greet sends the first request, which asks for the session.
func (w *wire) greet(b []byte) (int, error) {
	if len(b) < 28 {
		return 0, fmt.Errorf("zookeeper: a connect request of %d bytes", len(b))
	}
	id := int64(binary.BigEndian.Uint64(b[20:]))
	w.link.mu.Lock()
	refuse := id == 0 && w.link.id != 0
	w.link.mu.Unlock()
	if refuse {
		return 0, errRefused
	}
	w.greeted, w.sent = true, w.link.o.clock()
	w.limit = time.AfterFunc(w.link.dialer.patience(), func() { _ = w.Conn.Close() })
	if w.link.o.OnOperation != nil {
		w.link.o.OnOperation("connect", 1)
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.in.Read(b)
	w.look(b[:n])
	if err != nil {
		w.once.Do(func() { close(w.gone) })
		if !w.answered {
			w.link.dialer.servers.empty(w.to)
			w.link.dialer.servers.failed(w.to, fmt.Errorf("%s: no session: %w (a server without a quorum?)", w.to, err))
		}
	}
	return n, err
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.gone) })
	if w.limit != nil {
		w.limit.Stop()
	}
	return w.Conn.Close()
}

// look parses the stream of answers and collects the head of each.
func (w *wire) look(b []byte) {
	for len(b) > 0 {
		var n int
		switch {
		case w.have < 4:
			n = copy(w.head[w.have:4], b)
			if w.have += n; w.have == 4 {
				w.rest = int(binary.BigEndian.Uint32(w.head[:]))
			}
		case w.have < len(w.head):
			n = copy(w.head[w.have:min(len(w.head), w.have+w.rest)], b)
			w.rest -= n
			if w.have += n; w.have == len(w.head) {
				w.answer()
			}
		default:
			n = min(w.rest, len(b))
			w.rest -= n
		}
		b = b[n:]
		if w.have >= 4 && w.rest == 0 {
			w.have = 0
		}
	}
}

// answer handles the head of an answer.
func (w *wire) answer() {
	if w.answered { // number, zxid, error
		if zxid := int64(binary.BigEndian.Uint64(w.head[8:])); zxid > w.link.zxid.Load() {
			w.link.zxid.Store(zxid) // nothing else writes it
		}
		return
	}
	w.answered = true
	w.limit.Stop()
	// Protocol, timeout in milliseconds, session.
	timeout := time.Duration(binary.BigEndian.Uint32(w.head[8:])) * time.Millisecond
	id := int64(binary.BigEndian.Uint64(w.head[12:]))
	if id == 0 || timeout == 0 {
		return // the session is over; the client sees it too
	}
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	if w.link.id == 0 {
		w.link.life.trust.confirm(w.sent)
	}
	w.link.id = id
	w.link.life.trust.grant(timeout)
	w.link.life.renewed()
}
