package process

import (
	"runtime"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// kind is what a frame is about.
type kind byte

// The kinds that the host sends, and from kindReady on those of a worker process.
const (
	kindStart  kind = iota + 1 // start: the first frame
	kindOpen                   // open
	kindModule                 // the metered module, after an open that says so
	kindRun                    // run
	kindEnd                    // end
	kindAnswer                 // answer, to a call
	kindCancel                 // cancel
	kindClose                  // closed
	kindDrop                   // dropped

	kindReady  // ready: the first frame
	kindOpened // opened
	kindCall   // call: the guest waits for the answer
	kindTell   // call, to which there is no answer
	kindResult // result
)

// Limits of a frame's body in bytes.
const (
	maxFromHost    = 2*abi.MaxModuleSize + 1<<20
	maxFromProcess = 1 << 20
	// maxTell is for calls without an answer: several of them may wait.
	maxTell = 16 * abi.MaxLogMessage
	// maxText bounds each text of a result: a stack or a message.
	maxText = 64 << 10
)

// start is the configuration of a process.
type start struct {
	// Dir has the compiled code. Compile says that modules are compiled here.
	Dir     string
	Compile bool
	// Readable are the directories that guests read directly.
	Readable []string
}

// ready is the result of start.
type ready struct {
	// Failure says what failed; empty: nothing.
	Failure string
	// Lacks names the sandbox parts that the system lacks.
	Lacks []string
	// Data is the process's initial data size, in bytes.
	Data uint64
	// Problem is what a test has found in the sandbox.
	Problem string
}

// The parts that a sandbox may lack: others are not accepted.
const (
	lacksLandlock = "Landlock"
	lacksFilter   = "a seccomp filter for " + runtime.GOARCH
	lacksSandbox  = "a sandbox for " + runtime.GOOS
)

// open gives the process a module with a job's settings.
type open struct {
	Executor int64 // names it from now on
	Module   plugin.Packed
	// Bytes says that the next frame has the module, because the process does not have it.
	Bytes    bool
	Settings plugin.Settings
	// Trial makes only a trial instance with Pages of memory.
	Trial bool
	Pages uint32
}

// opened is the result of open.
type opened struct {
	_        struct{} `cbor:",toarray"`
	Executor int64
	// Problem says what is wrong with the module.
	Problem string
	// NotStored says that its compiled code is not where it was expected.
	NotStored bool
	// Failure is an error that is not the module's fault.
	Failure string
}

// dropped says that an executor is no longer needed.
type dropped struct {
	_        struct{} `cbor:",toarray"`
	Executor int64
}

// run starts an invocation of a guest, which its first run creates.
type run struct {
	_          struct{} `cbor:",toarray"`
	Run        int64    // names the invocation
	Executor   int64
	Guest      int64
	Export     string // of a listener; empty: the item
	Deadline   int64  // in nanoseconds since 1970; 0: none
	LogLevel   int    // lines below it are not wanted
	Invocation invoked
	Offset     []byte
	HasOffset  bool
	Outside    bool   // there is an abi.Outside
	WholeLog   string // that of an abi.WholeLog; empty: there is none
}

// invoked is an abi.ShardingContext.
type invoked struct {
	_                              struct{} `cbor:",toarray"`
	JobName, TaskID                string
	TotalCount                     int
	JobParameter                   string
	Item                           int
	Parameter                      string
	HasParameter                   bool
	Fire, Previous, Next, Deadline int64 // in nanoseconds since 1970; 0: none
	Attempt                        int
	Fence                          int64
	FetchDataCount                 int
	RunID                          string
	Source                         abi.Source
	PluginConfig                   []byte
	Traceparent                    string
	HostInfo                       string
}

func pack(c *abi.ShardingContext) invoked {
	return invoked{JobName: c.JobName, TaskID: c.TaskID, TotalCount: c.ShardingTotalCount, JobParameter: c.JobParameter,
		Item: c.ShardingItem, Parameter: c.ShardingParameter, HasParameter: c.HasShardingParameter,
		Fire: nanos(c.FireTime), Previous: nanos(c.PreviousFireTime), Next: nanos(c.NextFireTime), Deadline: nanos(c.Deadline),
		Attempt: c.Attempt, Fence: c.Fence, FetchDataCount: c.FetchDataCount, RunID: c.RunID, Source: c.Source,
		PluginConfig: c.PluginConfig, Traceparent: c.Traceparent, HostInfo: c.HostInfo}
}

func (p *invoked) unpack() abi.ShardingContext {
	return abi.ShardingContext{JobName: p.JobName, TaskID: p.TaskID, ShardingTotalCount: p.TotalCount, JobParameter: p.JobParameter,
		ShardingItem: p.Item, ShardingParameter: p.Parameter, HasShardingParameter: p.HasParameter,
		FireTime: instant(p.Fire), PreviousFireTime: instant(p.Previous), NextFireTime: instant(p.Next), Deadline: instant(p.Deadline),
		Attempt: p.Attempt, Fence: p.Fence, FetchDataCount: p.FetchDataCount, RunID: p.RunID, Source: p.Source,
		PluginConfig: p.PluginConfig, Traceparent: p.Traceparent, HostInfo: p.HostInfo}
}

// nanos is 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// end says that the time of an invocation is up, or that it is to stop.
type end struct {
	_       struct{} `cbor:",toarray"`
	Run     int64
	Timeout bool
}

// closed says that a guest is no longer used.
type closed struct {
	_     struct{} `cbor:",toarray"`
	Guest int64
}

// line is a line of a guest.
type line struct {
	_     struct{} `cbor:",toarray"`
	Level int
	Text  string
	Attrs []string
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

// maxPiece is how much one call of a capability transfers, in bytes: a longer read or write is split, and no
// other parameter may be as long.
const maxPiece = 256 << 10

// call asks the host for something on behalf of an invocation.
type call struct {
	_     struct{} `cbor:",toarray"`
	Run   int64
	Name  string
	Level int      // of a line
	Text  string   // of a line; a metric's name; a function of a capability (module.function)
	Attrs []string // of a line
	Lines []line   // for the whole log
	Kind  int      // of a metric
	// A and B are: done and total; a metric's value; bytes of memory, and the part for native stacks; 1 for no
	// offset.
	A     int64
	B     int64
	Bytes []byte // an offset
	// Of a function of a capability.
	Numbers []int64
	Texts   [][]byte
	Limit   int
}

// answer is a code of the contract, a reason to stop, or 1 for yes.
type answer struct {
	_     struct{} `cbor:",toarray"`
	Run   int64
	Value int64
	Text  string // why memory is refused
	Bytes []byte // what a capability answers
}

// cancel is the present reason for an invocation to stop.
type cancel struct {
	_     struct{} `cbor:",toarray"`
	Run   int64
	Value abi.Cancel
}

// result is an abi.Result without the fields that only the host knows.
type result struct {
	_                struct{} `cbor:",toarray"`
	Run              int64
	Outcome          abi.Outcome
	NotBegun         bool
	Status           abi.Status
	Message          string
	Offset           []byte
	Staged           bool
	Batches, Records int64
	Yielded          bool
	Memory           int64
	DroppedLines     int64
	Reads, ReadBytes int64
	RetryAt          int64 // Unix milliseconds; 0: none
	PauseKey         bool
	Error            *failure
}

// failure is a plugin.Error.
type failure struct {
	_        struct{} `cbor:",toarray"`
	Kind     plugin.Kind
	Op       string
	ExitCode uint32
	Stack    string
	Stderr   string
	Cause    string
}
