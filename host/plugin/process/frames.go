package process

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/plugin"
)

// kind is what a frame is about.
type kind byte

// The kinds that the host sends, and after kindReady those of a worker process.
const (
	kindStart  kind = iota + 1 // start: the first frame
	kindModule                 // the metered module: the second frame
	kindRun                    // run
	kindEnd                    // end
	kindAnswer                 // answer
	kindClose                  // closed

	kindReady  // ready: the first frame
	kindCall   // call
	kindResult // result
)

// Limits of a frame's body in bytes.
const (
	maxFromHost    = 2*abi.MaxModuleSize + 1<<20
	maxFromProcess = 1 << 20
	// maxText bounds each text of a result: a stack or a message.
	maxText = 64 << 10
)

// start is what a process is to do.
type start struct {
	Module plugin.Packed
	// Dir has the compiled code. Compile says that it is compiled here.
	Dir     string `json:",omitempty"`
	Compile bool   `json:",omitempty"`
	// Trial says that an instance with Pages of memory is made on trial, and
	// nothing else. Otherwise the Settings say how guests are run.
	Trial    bool   `json:",omitempty"`
	Pages    uint32 `json:",omitempty"`
	Settings plugin.Settings
	// Data is how much data the process may have, in bytes, besides what it
	// begins with; Files how many files it may open.
	Data  uint64
	Files uint64
}

// run starts an invocation of a worker, which exists from its first one on.
type run struct {
	Worker     int64
	Export     string    `json:",omitempty"` // of a listener; empty: the item
	Deadline   time.Time // zero: none
	LogLevel   int       // lines below it are not wanted
	Invocation abi.ShardingContext
	Offset     []byte `json:",omitempty"`
	HasOffset  bool   `json:",omitempty"`
	Outside    bool   `json:",omitempty"` // there is an abi.Outside
	WholeLog   string `json:",omitempty"` // that of an abi.WholeLog; empty: there is none
}

// end says that the time of an invocation is up, or that it is to stop.
type end struct {
	Worker  int64
	Timeout bool
}

// closed says that a worker is not used any more.
type closed struct{ Worker int64 }

// ready is how the start went.
type ready struct {
	// Problem says what is wrong with the module.
	Problem string `json:",omitempty"`
	// NotStored says that its compiled code is not where it was expected.
	NotStored bool `json:",omitempty"`
	// Failure is of another kind: the module is not to blame.
	Failure string `json:",omitempty"`
	// Lacks names the parts of the sandbox that the system does not have.
	Lacks []string `json:",omitempty"`
}

// What a sandbox may lack: nothing else is believed.
const (
	lacksLandlock = "Landlock"
	lacksFilter   = "a seccomp filter for " + runtime.GOARCH
	lacksSandbox  = "a sandbox for " + runtime.GOOS
)

// line is a line of a guest.
type line struct {
	Level int      `json:",omitempty"`
	Text  string   `json:",omitempty"`
	Attrs []string `json:",omitempty"`
}

// Names of calls.
const (
	callLog       = "log"
	callWholeLog  = "wholeLog"
	callProgress  = "progress"
	callMetric    = "metric"
	callCommit    = "commit"
	callStage     = "stage"
	callPause     = "pause"
	callCancelled = "cancelled"
	callMemory    = "memory"
	callOutside   = "outside"
)

// maxPiece is the most that a call of a capability takes or gives at once, in bytes: a
// longer read or write is done in part, and nothing else may be as long.
const maxPiece = 256 << 10

// call asks the host for something on behalf of an invocation.
type call struct {
	Worker int64
	Name   string
	Level  int      `json:",omitempty"` // of a line
	Text   string   `json:",omitempty"` // of a line; a metric's name
	Attrs  []string `json:",omitempty"` // of a line
	Lines  []line   `json:",omitempty"` // for the whole log
	Kind   int      `json:",omitempty"` // of a metric
	// A and B are: done and total; a metric's value; bytes of memory; 1 for no offset.
	A     int64  `json:",omitempty"`
	B     int64  `json:",omitempty"`
	Bytes []byte `json:",omitempty"` // an offset
	// Of a function of a capability, which Text names (module.function).
	Numbers []int64  `json:",omitempty"`
	Texts   [][]byte `json:",omitempty"`
	Limit   int      `json:",omitempty"`
}

// answer is a code of the contract, a reason to stop, or 1 for yes.
type answer struct {
	Worker int64
	Value  int64
	Text   string `json:",omitempty"` // why memory is refused
	Bytes  []byte `json:",omitempty"` // what a capability answers
}

// result is an abi.Result, whose Err is in Error.
type result struct {
	Worker int64
	abi.Result
	Error *failure `json:",omitempty"`
}

// failure is a plugin.Error.
type failure struct {
	Kind     plugin.Kind
	Op       string
	ExitCode uint32 `json:",omitempty"`
	Stack    string `json:",omitempty"`
	Stderr   string `json:",omitempty"`
	Cause    string `json:",omitempty"`
}

const headSize = 5

// reader reads frames of at most max bytes. One goroutine uses it.
type reader struct {
	r   *bufio.Reader
	max uint32
}

func newReader(r io.Reader, most uint32) *reader {
	return &reader{bufio.NewReaderSize(r, 16<<10), most}
}

// next reads a frame. The error is io.EOF if there is none. The body is the
// caller's; memory is taken as it comes, not as its length says.
func (r *reader) next() (kind, []byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, err
	}
	n, k := binary.LittleEndian.Uint32(head[:]), kind(head[4])
	if n > r.max {
		return 0, nil, fmt.Errorf("a frame of %d bytes, expected at most %d", n, r.max)
	}
	var body bytes.Buffer
	body.Grow(int(min(n, 64<<10)))
	if _, err := io.CopyN(&body, r.r, int64(n)); err != nil {
		return 0, nil, fmt.Errorf("a frame of %d bytes has ended after %d: %w", n, body.Len(), err)
	}
	return k, body.Bytes(), nil
}

// expect reads a frame of a kind.
func (r *reader) expect(want kind, into any) error {
	k, body, err := r.next()
	if err != nil {
		return err
	}
	if k != want {
		return fmt.Errorf("a frame of kind %d, expected %d", k, want)
	}
	return decode(body, into)
}

// decode reads a body. Unknown fields are mistakes: both sides are one program.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("a frame's body: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("a frame's body is followed by something else")
	}
	return nil
}

// writer writes frames. It is safe for concurrent use; a write may last until the
// other side reads, or ends.
type writer struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *writer) send(k kind, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return w.sendBytes(k, b)
}

func (w *writer) sendBytes(k kind, body []byte) error {
	b := make([]byte, headSize, headSize+len(body))
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	b[4] = byte(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(append(b, body...))
	return err
}
