// Package tap listens in on what clients ask of a ZooKeeper server: a TCP proxy
// that passes everything on and notes each request, its paths, and when it was
// sent and answered. It sees what any client does, whatever it is written in.
package tap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Code is a request's operation code.
type Code int32

// The codes that are told apart. Others are counted like any request.
const (
	Create     Code = 1
	Delete     Code = 2
	Exists     Code = 3
	GetData    Code = 4
	SetData    Code = 5
	Sync       Code = 9
	Ping       Code = 11
	Children2  Code = 12
	Check      Code = 13
	Multi      Code = 14
	Create2    Code = 15
	Container  Code = 19
	MultiRead  Code = 22
	SetAuth    Code = 100
	SetWatches Code = 101
	Close      Code = -11
	// Connect is the first frame of a connection, which has no code.
	Connect Code = -10
)

// String is the operation's name, or else its number.
func (c Code) String() string {
	names := map[Code]string{
		Create: "create", Delete: "delete", Exists: "exists", GetData: "get", SetData: "set", Sync: "sync", Ping: "ping",
		Children2: "children", Check: "check", Multi: "multi", Create2: "create", Container: "create container",
		MultiRead: "multi read", SetAuth: "auth", SetWatches: "set watches", Close: "close", Connect: "connect",
	}
	if name, ok := names[c]; ok {
		return name
	}
	return "operation " + strconv.Itoa(int(c))
}

// Writes reports whether the operation may change something.
func (c Code) Writes() bool {
	switch c {
	case Create, Delete, SetData, Multi, Create2, Container:
		return true
	}
	return false
}

// Op is a request.
type Op struct {
	// Client is the name that Open was given, Conn the number of the
	// connection.
	Client string
	Conn   int
	Code   Code
	// Path is the node; for a multi that of its first part.
	Path string
	// Parts is how many operations a multi has; 1 otherwise. Details says
	// which, as "create /a", if the recorder wants details.
	Parts   int
	Details []string
	// Size is that of the frame in bytes.
	Size int
	// Sent and Answered are when the frames passed. Answered is zero as long
	// as there is no answer.
	Sent, Answered time.Time
	// Err is the answer's error code; 0 is none.
	Err int32
}

// Recorder has all requests, in the order in which they passed. The zero value
// is ready. It is safe for concurrent use.
type Recorder struct {
	// Detailed has it keep what multis consist of. It is set before the first
	// Open.
	Detailed bool

	mu    sync.Mutex
	ops   []Op
	conns int
	taps  []*Tap
}

// Tap is a proxy of one client.
type Tap struct {
	recorder *Recorder
	client   string
	target   string
	listener net.Listener
	group    sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool // nil once closed
	fails error
}

// Open listens on a free port, for a client with this name, and passes on to
// target.
func (r *Recorder) Open(client, target string) (*Tap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &Tap{recorder: r, client: client, target: target, listener: l, open: make(map[net.Conn]bool)}
	r.mu.Lock()
	r.taps = append(r.taps, t)
	r.mu.Unlock()
	t.group.Go(t.accept)
	return t, nil
}

// Addr is where the tap listens: the client's connect string.
func (t *Tap) Addr() string { return t.listener.Addr().String() }

// Close ends all taps and their connections. It returns the first thing that
// could not be read as ZooKeeper's protocol.
func (r *Recorder) Close() error {
	r.mu.Lock()
	taps := slices.Clone(r.taps)
	r.mu.Unlock()
	var errs []error
	for _, t := range taps {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// Close ends the tap and its connections. It returns the first thing that
// could not be read as ZooKeeper's protocol.
func (t *Tap) Close() error {
	t.mu.Lock()
	for c := range t.open {
		c.Close()
	}
	t.open = nil
	t.mu.Unlock()
	t.listener.Close()
	t.group.Wait()
	return t.fails
}

// Mark is the number of requests so far: a place to look from.
func (r *Recorder) Mark() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// Ops are the requests from the mark on that ok accepts.
func (r *Recorder) Ops(mark int, ok func(*Op) bool) (list []Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := mark; i < len(r.ops); i++ {
		if ok(&r.ops[i]) {
			list = append(list, r.ops[i])
		}
	}
	return list
}

func (t *Tap) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", t.target)
		if err != nil {
			client.Close()
			continue
		}
		if !t.track(client, server) {
			return
		}
		t.recorder.mu.Lock()
		t.recorder.conns++
		c := &conn{tap: t, number: t.recorder.conns}
		t.recorder.mu.Unlock()
		t.group.Go(func() { t.pump(c, server, client, c.request) })
		t.group.Go(func() { t.pump(c, client, server, c.answer) })
	}
}

// track remembers connections; false if there can be none any more.
func (t *Tap) track(list ...net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range list {
		if t.open == nil {
			c.Close()
			continue
		}
		t.open[c] = true
	}
	return t.open != nil
}

// pump passes frames on until an end closes, and shows each to note first.
func (t *Tap) pump(c *conn, to, from net.Conn, note func(frame []byte) error) {
	defer func() {
		to.Close()
		from.Close()
		t.mu.Lock()
		delete(t.open, to)
		delete(t.open, from)
		t.mu.Unlock()
	}()
	in := bufio.NewReaderSize(from, 64<<10)
	out := bufio.NewWriterSize(to, 64<<10)
	var frame []byte
	for {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		if c.commands(head) {
			// Four letters, such as "conf": an administrator's command, which
			// is not cut into frames.
			if _, err := to.Write(head[:]); err == nil {
				_, _ = io.Copy(to, in) // how it ends is the end of the connection
			}
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > 64<<20 {
			t.fail(fmt.Errorf("tap: %s: a frame of %d bytes", t.client, n))
			return
		}
		frame = slices.Grow(frame[:0], int(n))[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		if err := note(frame); err != nil {
			t.fail(fmt.Errorf("tap: %s: %w", t.client, err))
		}
		_, err1 := out.Write(head[:])
		_, err2 := out.Write(frame)
		var err3 error
		if in.Buffered() == 0 {
			err3 = out.Flush()
		}
		if err1 != nil || err2 != nil || err3 != nil {
			return
		}
	}
}

func (t *Tap) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fails == nil {
		t.fails = err
	}
}

// conn is a connection: requests are answered in their order, but for those
// that have a number below 0.
type conn struct {
	tap    *Tap
	number int

	mu         sync.Mutex
	command    bool // the connection is not a session
	greeted    bool // the client's first frame has passed
	welcomed   bool // the server's
	unanswered map[int32][]int
}

// commands reports whether the connection carries a command, which its first
// four bytes say.
func (c *conn) commands(head [4]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.greeted && !slices.ContainsFunc(head[:], func(b byte) bool { return b < 'a' || b > 'z' }) {
		c.command = true
	}
	return c.command
}

var errShort = errors.New("a frame that is too short")

// request notes a frame of the client.
func (c *conn) request(frame []byte) error {
	op := Op{Client: c.tap.client, Conn: c.number, Parts: 1, Size: len(frame) + 4, Sent: time.Now()}
	var xid int32
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.greeted {
		c.greeted = true
		op.Code = Connect
	} else {
		d := decoder{rest: frame}
		xid = d.int32()
		op.Code = Code(d.int32())
		op.read(&d, c.tap.recorder.Detailed)
		if d.short {
			return errShort
		}
	}
	at := c.tap.recorder.add(op)
	if c.unanswered == nil {
		c.unanswered = make(map[int32][]int)
	}
	c.unanswered[xid] = append(c.unanswered[xid], at)
	return nil
}

// read takes the path, if the request begins with one.
func (o *Op) read(d *decoder, detailed bool) {
	switch o.Code {
	case Create, Delete, Exists, GetData, SetData, Sync, Children2, Check, Create2, Container, 6, 7, 8, 16, 18, 20, 21, 104, 106:
		o.Path = d.text()
	case Multi, MultiRead:
		o.Parts = 0
		for {
			code, done := Code(d.int32()), d.byte() != 0
			d.int32() // an error, in answers
			if done || d.short {
				return
			}
			path := d.text()
			if o.Parts == 0 {
				o.Path = path
			}
			if detailed {
				o.Details = append(o.Details, code.String()+" "+path)
			}
			o.Parts++
			switch code {
			case Create, Create2, Container, 21:
				d.bytes() // data
				for range d.int32() {
					if d.short {
						return
					}
					d.int32()
					d.text()
					d.text()
				}
				d.int32() // flags
				if code == 21 {
					d.int32()
					d.int32()
				}
			case Delete, Check:
				d.int32()
			case SetData:
				d.bytes()
				d.int32()
			case Exists, GetData, Children2, 8:
				if o.Code != MultiRead {
					d.short = true
				}
			default:
				d.short = true
			}
		}
	}
}

// answer notes a frame of the server.
func (c *conn) answer(frame []byte) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var xid, code int32
	if !c.welcomed {
		c.welcomed = true
	} else {
		d := decoder{rest: frame}
		xid = d.int32()
		d.int32()
		d.int32() // zxid
		code = d.int32()
		if d.short {
			return errShort
		}
		if xid == -1 {
			return nil // a watch fires
		}
	}
	waiting := c.unanswered[xid]
	if len(waiting) == 0 {
		return fmt.Errorf("an answer to %d, which nobody has asked", xid)
	}
	if len(waiting) == 1 {
		delete(c.unanswered, xid)
	} else {
		c.unanswered[xid] = waiting[1:]
	}
	c.tap.recorder.answered(waiting[0], now, code)
	return nil
}

func (r *Recorder) add(op Op) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
	return len(r.ops) - 1
}

func (r *Recorder) answered(at int, now time.Time, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops[at].Answered, r.ops[at].Err = now, code
}

// decoder reads ZooKeeper's serialization. After a short read it returns zeros.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.short, d.rest = true, nil
		return nil
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) int32() int32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

func (d *decoder) byte() byte {
	b := d.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (d *decoder) bytes() []byte {
	n := d.int32()
	if n == -1 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) text() string { return string(d.bytes()) }
