package wasmjob_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/wasmjob/wasmjob"

// room is a row of the table: a package, or all packages of a folder, and what
// it may import besides the standard library.
type room struct {
	// name is the folder; "x/*" stands for every folder directly in x.
	name string
	// may are the rooms it may import, outside the modules.
	may, outside []string
	// testsMay and testsOutside come on top for its test files.
	testsMay, testsOutside []string
	why                    string
}

// Names of modules, to keep the table narrow.
const (
	bbolt      = "go.etcd.io/bbolt"
	cbor       = "github.com/fxamacker/cbor/v2"
	cobra      = "github.com/spf13/cobra"
	cron       = "github.com/robfig/cron/v3"
	minisign   = "aead.dev/minisign"
	oauth2     = "golang.org/x/oauth2"
	mysql      = "github.com/go-sql-driver/mysql"
	memlimit   = "github.com/KimMachineGun/automemlimit"
	fsnotify   = "github.com/fsnotify/fsnotify"
	huma       = "github.com/danielgtaylor/huma/v2"
	ical       = "github.com/arran4/golang-ical"
	gzhttp     = "github.com/klauspost/compress"
	goleak     = "go.uber.org/goleak"
	gooidc     = "github.com/coreos/go-oidc/v3"
	gozk       = "github.com/go-zookeeper/zk"
	jsonschema = "github.com/santhosh-tekuri/jsonschema/v6"
	landlock   = "github.com/landlock-lsm/go-landlock"
	koanf      = "github.com/knadh/koanf"
	otlp       = "go.opentelemetry.io/proto/slim/otlp"
	pflag      = "github.com/spf13/pflag"
	pgx        = "github.com/jackc/pgx/v5"
	protobuf   = "google.golang.org/protobuf"
	prometheus = "github.com/prometheus"
	rrule      = "github.com/teambition/rrule-go"
	sqlite     = "modernc.org/sqlite"
	term       = "golang.org/x/term"
	wazero     = "github.com/tetratelabs/wazero"
	xcrypto    = "golang.org/x/crypto"
	xmod       = "golang.org/x/mod"
	xsync      = "golang.org/x/sync"
	xsys       = "golang.org/x/sys"
	xtext      = "golang.org/x/text"
	xtime      = "golang.org/x/time"
	yaml       = "go.yaml.in/yaml/v3"
	zap        = "go.uber.org/zap"
	zookeeper  = "github.com/go-zookeeper/zk"
)

// rooms is who may import whom. Imports go down only: a row may name rows
// above it, never below. A new package needs a row, with its reason.
var rooms = []room{
	{name: "abi", why: "the contract is read by hosts and guests alike; whatever it needed, both would need"},
	{name: "host/words", why: "how a value, a name or a quotation is worded must not depend on who asks"},
	{name: "host/tlsconfig", why: "which TLS the host speaks is the same for its server and for all of its clients"},
	{name: "host/times", may: []string{"host/words"}, why: "how people write a time must not depend on where they write it"},
	{name: "strategy", may: []string{"host/words"}, why: "pure functions: who gets which item must not depend on anything but the arguments"},

	{name: "sdk/internal/border", may: []string{"abi"}, why: "the border itself; the sdk proper and its fake host both stand on it"},
	{name: "sdk", may: []string{"abi", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "it is compiled into every guest: each import is bytes in every module"},
	{name: "sdk/internal/handle", may: []string{"abi", "sdk", "sdk/internal/border"},
		testsMay: []string{"sdk/sdktest"},
		why:      "how goroutines wait for the host: linked only into the guests that have handles"},
	{name: "sdk/http", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "linked only into the guests that send requests; without net/http, which is 6 MB"},
	{name: "sdk/net", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "linked only into the guests that have connections; what client libraries ask for, and no more"},
	{name: "sdk/nethttp", may: []string{"sdk/http"},
		testsMay: []string{"sdk", "sdk/sdktest"},
		why:      "linked only into the guests that have net/http; all it does is done by the two rooms"},
	{name: "sdk/nethttp/clones", may: []string{"sdk/net", "sdk/nethttp"},
		why: "apart from sdk/nethttp, which must not import connections: a module with that import is refused where only requests are granted"},
	{name: "sdk/kv", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "linked only into the guests that keep state"},
	{name: "sdk/env", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "linked only into the guests that ask for it"},
	{name: "sdk/simple", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "linked only into the guests that are simple jobs"},
	{name: "sdk/dataflow", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "linked only into the guests that are dataflow jobs"},
	{name: "sdk/listener/*", may: []string{"abi", "sdk", "sdk/internal/*"},
		testsMay: []string{"sdk/sdktest"},
		why:      "a listener export is linked only into the guests that import its package"},
	{name: "sdk/sdktest", may: []string{"abi", "sdk", "sdk/simple", "sdk/dataflow", "sdk/listener/*", "sdk/internal/*"},
		testsMay: []string{"sdk/testdata/guests/*/handler"}, testsOutside: []string{wazero},
		why: "authors test with it natively; its own tests hold it to what a runtime does with the same guests"},
	{name: "plugins/examples/*", may: []string{"abi", "sdk", "sdk/simple", "sdk/dataflow", "sdk/listener/*", "sdk/http", "sdk/net", "sdk/nethttp", "sdk/kv", "sdk/env"},
		testsMay: []string{"sdk/sdktest"},
		why:      "guests see what any job author sees"},

	{name: "coordination/registry", why: "what a backend implements and everybody else writes through; it knows no job"},
	{name: "coordination/jobconfig", may: []string{"strategy", "host/times", "host/words"}, outside: []string{yaml},
		why: "what a job is set to: hosts, files and ElasticJob's YAML agree on it, and none of it needs the protocol"},
	{name: "coordination/step", may: []string{"coordination/registry"},
		why: "how a step reads and commits is the same for every step; it knows no job"},
	{name: "coordination/tree", may: []string{"coordination/jobconfig", "coordination/registry", "host/words"}, outside: []string{yaml},
		why: "what nodes a job has and what they hold: every room that looks into a registry reads it the same way; ElasticJob's instance nodes are YAML"},
	{name: "coordination/sessions", may: []string{"coordination/registry"},
		why: "who lives as long as a session; it knows nothing of what they do in it"},
	{name: "coordination/latch", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		why: "Curator's recipe, as Java hosts follow it; it does not know what its turns are for"},
	{name: "coordination/guarantee", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		why: "the barrier of distributed listeners: its nodes are its own, and no member's step reads them"},
	{name: "coordination/fence", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		testsMay: []string{"coordination/embedded"},
		why:      "whether a registry's numbers grow is asked by hosts at each session, and by who adopts one; no step of a job needs it"},
	{name: "coordination/inspect", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/step", "coordination/tree"},
		why: "what people see of jobs is read from the nodes alone; no host decides anything by it"},
	{name: "coordination/recorded", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		testsMay: []string{"coordination/operate", "coordination/registrytest", "test/registries"},
		why:      "which changes are on record is the same for who makes one and for who sees one; no step of the protocol needs it"},
	{name: "coordination/operate", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/step", "coordination/tree", "host/words"},
		testsMay: []string{"coordination/embedded", "coordination/registrytest"},
		why:      "what operators do works on any registry without a host; no member's step needs it"},
	{name: "coordination", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/step", "coordination/tree", "coordination/latch", "strategy"},
		testsMay: []string{"coordination/embedded", "coordination/registrytest", "coordination/zookeeper", "coordination/guarantee", "coordination/inspect", "coordination/operate", "coordination/cleanup", "test/zkserver"},
		why:      "decides and never acts; its scenarios are played on a registry"},
	{name: "coordination/cleanup", may: []string{"coordination", "coordination/registry", "coordination/step", "coordination/tree"},
		why: "removes what is unused by a host's view of the job; no step of the protocol needs it"},
	{name: "coordination/registrytest", may: []string{"coordination/registry"},
		testsMay: []string{"coordination/embedded"},
		why:      "the suite for every registry cannot know any of them"},
	{name: "coordination/embedded", may: []string{"coordination/registry"}, outside: []string{bbolt},
		testsMay: []string{"coordination/registrytest"},
		why:      "a registry is an adapter: swapped without anybody noticing"},
	{name: "coordination/zookeeper", may: []string{"coordination/registry"}, outside: []string{gozk, zap, xsys},
		testsMay: []string{"coordination/registrytest", "test/zkserver"},
		why:      "the other registry: the only room that knows how ZooKeeper talks"},

	{name: "host/due", may: []string{"coordination/tree", "host/words"}, outside: []string{cron}, why: "which instants are due, by the clock and what was begun alone"},
	{name: "host/schedule", may: []string{"host/words"}, outside: []string{cron}, why: "cron dialects, and nothing else, behind one interface"},
	{name: "host/signature", may: []string{"host/words"}, outside: []string{minisign}, why: "who signed a file: it knows bytes and keys, and neither modules nor grants"},
	{name: "host/ceiling", may: []string{"coordination/jobconfig", "host/words"},
		why: "pure functions: what a job may have at most; whoever enforces a ceiling asks here"},
	{name: "host/yamlnode", may: []string{"coordination/jobconfig", "host/words"}, outside: []string{yaml},
		why: "how a file of YAML is taken apart, and its nodes are worded, is the same for definitions and grants"},
	{name: "host/ownership", why: "who can change a file that a host trusts: all who read one ask here, and it knows no file"},
	{name: "host/fields", may: []string{"host/words", "host/yamlnode"}, outside: []string{yaml},
		why: "how a file of settings is read, and how its mistakes are reported, whatever the settings are"},
	{name: "host/calendar", may: []string{"host/fields", "host/words"}, outside: []string{ical, rrule, yaml},
		why: "sets of days, and the files that they are read from; it knows no job and no clock"},
	{name: "host/timetable", may: []string{"coordination/jobconfig", "host/calendar", "host/schedule", "host/words"}, outside: []string{cron},
		why: "at which instants a job fires by its configuration: hosts, alerts, explanations and previews ask the same"},
	{name: "host/watch", outside: []string{fsnotify}, why: "that a file has changed, whatever is in it"},
	{name: "host/capability/address", why: "which addresses are public is a table; dialers ask it, and the reader of grants"},
	{name: "host/grants", may: []string{"abi", "coordination/jobconfig", "host/capability/address", "host/ceiling", "host/fields", "host/ownership", "host/signature", "host/watch", "host/words", "host/yamlnode"}, outside: []string{yaml},
		why: "what an operator grants is read from files, whatever it is granted for; patterns are those of ceilings, sizes those of jobs"},
	{name: "host/capability", may: []string{"abi", "host/grants", "host/words"},
		testsMay: []string{"host/capability/capabilitytest"},
		why:      "handles, quotas and counts, without a word on what stands behind a handle"},
	{name: "host/capability/dial", may: []string{"abi", "host/capability", "host/capability/address"}, outside: []string{xsys},
		why: "every connection of a guest is made here: one place checks addresses, names and ownership"},
	{name: "host/capability/pipe", may: []string{"abi", "host/capability"},
		why: "how bytes get from calls that do not block to a goroutine, whatever the bytes are"},
	{name: "host/capability/capabilitytest", may: []string{"abi", "host/grants", "host/capability"},
		why: "a guest for the tests of all capabilities; it knows none of them"},
	{name: "host/capability/http", may: []string{"abi", "host/words", "host/grants", "host/capability", "host/capability/address", "host/capability/dial", "host/capability/pipe"},
		testsMay: []string{"host/capability/capabilitytest"},
		why:      "requests, without a word on jobs and items: it has a grant and a run"},
	{name: "host/capability/net", may: []string{"abi", "host/words", "host/grants", "host/capability", "host/capability/address", "host/capability/dial", "host/capability/pipe"},
		testsMay: []string{"host/capability/capabilitytest"},
		why:      "connections, without a word on jobs and items: it has a grant and a run"},
	{name: "host/capability/kv", may: []string{"abi", "host/capability"}, testsMay: []string{"host/grants"}, why: "the state of an item; how it is committed is the host's"},
	{name: "host/capability/env", may: []string{"abi", "host/capability"}, why: "reads what is granted, and nothing else"},
	{name: "host/capability/dir", may: []string{"abi", "host/capability", "host/grants"}, outside: []string{wazero}, testsMay: []string{"host/capability/capabilitytest"}, why: "what guests do in directories, carried out in the host; of wazero it knows the flags of files"},
	{name: "host/event", may: []string{"abi", "host/ceiling", "host/words"},
		testsMay: []string{"coordination/registry"},
		why:      "what a host reports: whoever reads a history needs the words, and not the host"},
	{name: "host/arrivals", why: "who goes next of those that wait, by when they are due; what it is that goes does not matter"},
	{name: "host/failures", may: []string{"coordination/registry", "host/event"}, why: "counts what the registry refuses, by reason; which request that was does not matter"},
	{name: "host/slots", why: "who runs next, by who waits since when and has what; what it is that runs does not matter"},
	{name: "host/imminent", why: "when fires begin, for what is not as urgent; what either is does not matter"},
	{name: "host/inflight", why: "how many commits may be under way, by how long they take; what is committed does not matter"},
	{name: "host/run", may: []string{"abi", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/guarantee", "host/capability/kv", "host/event", "host/slots"}, outside: []string{zap, xsync},
		why: "carries out what was begun: it is given the job as an interface, and decides nothing for it"},
	{name: "host/edits", may: []string{"coordination", "coordination/jobconfig", "coordination/operate", "coordination/recorded", "coordination/registry", "coordination/step", "coordination/tree", "host/event"},
		testsMay: []string{"coordination/embedded"},
		why:      "who changed a job, by what the registry has"},
	{name: "host", may: []string{"host/timetable", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/latch", "coordination/fence", "coordination/inspect", "coordination/operate", "coordination/recorded", "coordination/cleanup", "abi", "host/arrivals", "host/ceiling", "host/due", "host/edits", "host/event", "host/failures", "host/inflight", "host/run", "host/slots", "host/schedule", "host/words"}, outside: []string{cron, zap, xtime},
		testsMay: []string{"coordination/embedded", "coordination/registrytest", "strategy", "host/admin", "host/explain", "host/history", "host/texts", "host/verify"},
		why:      "receives registry and modules as values, so that tests hand it functions in a bubble"},
	{name: "host/plugin/wasm", may: []string{"abi", "host/words"},
		testsMay: []string{"test/wasm", "test/hostile"}, testsOutside: []string{wazero},
		why: "turns bytes into facts and other bytes; its tests run what comes of it, it runs nothing"},
	{name: "host/plugin", may: []string{"abi", "host/ownership", "host/plugin/wasm", "host/words"}, outside: []string{wazero, xsys, xtime},
		testsMay: []string{"sdk", "sdk/simple", "sdk/dataflow", "sdk/listener/*", "test/wasm", "test/hostile"},
		why:      "the only room that knows which WebAssembly runtime is in use"},
	{name: "host/plugin/process", may: []string{"abi", "host/plugin", "host/plugin/wasm"}, outside: []string{cbor, landlock, xsys, xtime},
		why: "runs what host/plugin runs in processes that can be killed; it knows the kernel's sandbox and the frames between host and process, and nothing of jobs"},
	{name: "host/builtin", may: []string{"abi", "coordination/jobconfig"}, why: "what a host can run without a file; it knows bytes and what a job's settings make of them"},
	{name: "host/definition", may: []string{"host/calendar", "host/timetable", "coordination/jobconfig", "host/builtin", "host/ceiling", "host/grants", "host/words", "host/yamlnode"}, outside: []string{yaml},
		testsOutside: []string{jsonschema},
		why:          "turns text into the words of coordination; runs nothing"},
	{name: "host/capability/offer", may: []string{"abi", "host/grants", "host/plugin", "host/capability", "host/capability/*"},
		testsMay: []string{"host/plugin/process", "host/plugin/wasm"}, testsOutside: []string{wazero},
		why: "puts the capabilities of a job together, around whatever runs its guests"},
	{name: "host/catalog", may: []string{"host/calendar", "host/timetable", "host", "host/builtin", "host/capability/dir", "host/capability/offer", "host/ceiling", "host/plugin", "host/plugin/process", "host/plugin/wasm", "host/definition", "host/grants", "host/signature", "host/words", "coordination/jobconfig", "abi"},
		outside: []string{fsnotify, zap},
		why:     "where files become jobs: it must know both, and which fires first; nobody below may know files"},
	{name: "host/filelock", why: "a history, a host's record and an edited file have one writer each; all ask here"},
	{name: "host/history", may: []string{"coordination/tree", "host/ceiling", "host/event", "host/words", "abi"}, outside: []string{zap},
		why: "what every store of records has in common; it knows none of them"},
	{name: "host/history/historytest", may: []string{"abi", "host/event", "host/history"},
		why: "the suite for every store cannot know any of them"},
	{name: "host/history/lines", may: []string{"host/event", "host/filelock", "host/history", "abi"}, outside: []string{zap, xsys, xtime},
		why: "writes records to a file and reads them back; it asks nothing of them"},
	{name: "host/history/database", may: []string{"coordination/jobconfig", "host/ceiling", "host/event", "host/filelock", "host/history", "host/history/lines", "host/times", "host/words", "abi"}, outside: []string{zap, mysql, pgx, sqlite},
		testsMay: []string{"host/history/historytest", "test/mariadbserver", "test/pgserver"}, testsOutside: []string{xsys},
		why: "keeps records in databases: the only room that knows SQL"},
	{name: "host/access", may: []string{"host/ceiling", "host/history", "host/words"}, outside: []string{zap},
		why: "who may do what: whoever carries out an operation asks here, and how somebody signed in is behind an interface; of the history it knows what a change is"},
	{name: "host/access/web", may: []string{"host/access", "host/words"}, outside: []string{gzhttp},
		why: "what every request is held to, before anybody knows who sent it"},
	{name: "host/access/cookie", may: []string{"host/access"},
		why: "what a browser keeps: it knows a session, and not how it came about"},
	{name: "host/access/throttle", why: "who tries too often, by name and address alone"},
	{name: "host/access/password", outside: []string{xcrypto}, why: "hashes of passwords, and nothing of whose they are"},
	{name: "host/access/signedout", may: []string{"coordination/registry", "coordination/sessions", "coordination/tree", "host/access/cookie"}, outside: []string{zap},
		testsMay: []string{"coordination/embedded"},
		why:      "which sessions were signed out at other hosts; it knows the registry, and no request"},
	{name: "host/access/users", may: []string{"host/access", "host/access/password", "host/ceiling", "host/fields", "host/filelock", "host/ownership", "host/watch", "host/words", "host/times"}, outside: []string{yaml, zap},
		why: "the file that says who may do what; it knows no request but by what it carries"},
	{name: "host/access/certificates", may: []string{"host/fields", "host/ownership", "host/watch", "host/tlsconfig"}, outside: []string{zap},
		testsMay: []string{"host/access", "host/access/users"},
		why:      "the files of TLS; who a certificate stands for is the users file's"},
	{name: "host/access/oidc", may: []string{"host/access", "host/access/users", "host/words", "host/tlsconfig"}, outside: []string{gooidc, oauth2, zap},
		why: "the only room that speaks OpenID Connect; it keeps nothing between two steps"},
	{name: "host/access/login", may: []string{"host/access", "host/access/cookie", "host/access/oidc", "host/access/throttle", "host/access/users", "host/access/web", "host/words"}, outside: []string{zap},
		testsMay: []string{"test/oidcserver"},
		why:      "how somebody signs in and out, without a page: the console has those"},
	{name: "host/access/gate", may: []string{"host/access", "host/access/*", "host/history"}, outside: []string{zap},
		why: "puts the rooms of access together, as a host and its tests want them"},
	{name: "host/texts", why: "which language is wanted, and what stands in a text's places; whose texts they are does not matter"},
	{name: "host/explain", may: []string{"host/timetable", "abi", "coordination/tree", "host/event", "host/history", "host/schedule", "host/texts", "host/words"},
		testsMay: []string{"coordination/jobconfig"},
		why:      "pure: what became of a fire is said by events alone, whoever has them; of the history it knows the records of changes"},
	{name: "host/alert", may: []string{"host/timetable", "abi", "coordination/tree", "host/ceiling", "host/event", "host/fields", "host/ownership", "host/schedule", "host/watch", "host/words", "host/times"}, outside: []string{yaml, zap},
		why: "decides by events and the clock alone what is wrong, who is told, and when; it knows neither registry nor receivers"},
	{name: "host/alert/board", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/sessions", "coordination/step", "coordination/tree", "host/alert", "host/event"},
		testsMay: []string{"coordination/embedded", "coordination/registrytest"},
		why:      "what stands in the registry of alerts; it decides nothing"},
	{name: "host/alert/send", may: []string{"host/alert", "host/fields", "host/ownership", "host/words", "host/tlsconfig"},
		why: "the only room that knows receivers: it is given a message, and knows no host"},
	{name: "host/alert/dispatch", may: []string{"coordination/registry", "host/alert", "host/alert/board", "host/event", "host/words"}, outside: []string{zap},
		testsMay: []string{"abi", "coordination/embedded", "coordination/jobconfig", "coordination/operate", "coordination/registrytest", "coordination/tree", "host"},
		why:      "the loop around the judge: it is given events and sessions, and a host does not wait for it"},
	{name: "host/verify", may: []string{"host/ceiling", "host/event", "host/words", "host/history/lines", "abi", "coordination/registry", "coordination/tree"},
		why: "judges by what hosts wrote down and what the registry holds; it must not believe the code that it checks"},
	{name: "host/metrics", may: []string{"abi", "coordination/tree", "host", "host/capability", "host/ceiling", "host/event"}, outside: []string{prometheus, zap},
		why: "counts what a host reports; who serves the numbers is not its matter"},
	{name: "host/admin", may: []string{"host/timetable", "host/words", "host/ceiling", "host/definition", "host/event", "host/filelock", "host/ownership", "host", "abi", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/fence", "coordination/inspect", "coordination/operate", "coordination/recorded", "host/capability", "host/capability/kv", "host/access", "host/access/users", "host/access/web", "host/tlsconfig"}, outside: []string{zap},
		testsMay: []string{"coordination/embedded", "host/ceiling", "host/metrics"},
		why:      "shows a host from outside; what it shows of all hosts, and what operators do to jobs, goes through the registry; of definitions it knows the defaults"},
	{name: "host/audit", may: []string{"coordination/fence", "coordination/recorded", "coordination/registry", "coordination/sessions", "coordination/tree", "host/history"}, outside: []string{zap},
		testsMay: []string{"coordination/registrytest", "test/registries"},
		why:      "takes records of changes from the registry into a history; it knows neither a job nor how one is changed"},
	{name: "host/unheld", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/sessions", "coordination/tree"}, outside: []string{zap},
		testsMay: []string{"test/registries"},
		why:      "what the registry has of jobs that no host speaks for; it does not know how hosts are asked"},
	{name: "host/cluster", may: []string{"host/timetable", "abi", "coordination/tree", "host", "host/admin", "host/event", "host/history", "host/unheld", "host/words", "host/times"},
		testsMay: []string{"host/history/database"},
		why:      "puts together what hosts say; how they are asked it is given as functions, so that tests answer in virtual time"},
	{name: "host/peers", may: []string{"coordination/registry", "coordination/sessions", "coordination/tree", "host/tlsconfig"}, outside: []string{zap},
		testsMay: []string{"coordination/embedded", "coordination/registrytest", "test/registries"},
		why:      "how hosts find and trust each other, whatever they ask"},
	{name: "host/service", may: []string{"abi", "coordination/registry", "coordination/tree", "host", "host/access", "host/access/throttle", "host/admin", "host/alert", "host/alert/board", "host/cluster", "host/event", "host/explain", "host/history", "host/words", "host/times"}, outside: []string{zap},
		testsMay: []string{"abi", "coordination/registry", "host/service/servicetest"},
		why:      "what people and programs ask for, done in one place whoever asks; it knows neither HTTP nor pages"},
	{name: "host/service/servicetest", may: []string{"abi", "coordination/embedded", "coordination/jobconfig", "coordination/registry", "coordination/tree", "host", "host/admin", "host/audit", "host/alert/board", "host/cluster", "host/event", "host/history", "host/history/database", "host/peers", "host/service", "host/unheld"}, outside: []string{zap},
		why: "whole hosts for the tests of the service and of what stands on it"},
	{name: "host/api", may: []string{"abi", "coordination/jobconfig", "coordination/operate", "coordination/registry", "coordination/tree", "host", "host/access", "host/access/web", "host/admin", "host/alert", "host/alert/board", "host/cluster", "host/event", "host/explain", "host/history", "host/service", "host/texts", "host/times", "host/words"}, outside: []string{huma, zap},
		testsMay: []string{"host/alert/board", "coordination/registry", "coordination/embedded", "host/history/database", "host/service/servicetest"},
		why:      "the service as HTTP: it decides nothing, and nothing below it knows of HTTP"},
	{name: "host/web", may: []string{"host/timetable", "abi", "coordination/jobconfig", "coordination/operate", "coordination/registry", "coordination/tree", "host", "host/access", "host/access/login", "host/admin", "host/alert", "host/cluster", "host/event", "host/explain", "host/history", "host/schedule", "host/service", "host/texts", "host/words", "host/times"}, outside: []string{zap},
		testsMay: []string{"host/alert/board", "host/history/database", "host/service/servicetest"},
		why:      "shows what host/service answers, as pages; it asks no registry, no host and no store by itself"},
	{name: "host/trace", may: []string{"abi", "coordination/tree", "host/event", "host/tlsconfig"}, outside: []string{otlp, protobuf, zap},
		testsMay: []string{"test/collector"},
		why:      "makes spans of events; a host does not know of it, and no fire waits for it"},
	{name: "host/migrate", may: []string{"host/words", "coordination/registry", "coordination/jobconfig", "coordination/tree", "host/definition", "host/schedule"}, outside: []string{yaml, cron},
		testsMay: []string{"coordination/embedded"},
		why:      "knows the trees of old ElasticJobs, which nothing else here should; writes definitions, and has them read back"},
	{name: "host/deadman", may: []string{"host/filelock"}, outside: []string{xsys},
		why: "the kernel's timers and a file: it ends a process, whatever that runs"},
	{name: "host/console", may: []string{"host/words", "host/event"}, outside: []string{xtext, zap},
		why: "how a line looks, for all that write lines; it takes them from anybody, and knows nobody"},
	{name: "host/view", may: []string{"host/words", "abi", "host/event", "host/console", "coordination/tree"}, outside: []string{zap, xtime},
		why: "which lines a host's events become; it sees the events and nothing else of the host"},
	{name: "host/contexts", may: []string{"host/fields", "host/filelock", "host/words"}, outside: []string{yaml},
		why: "the names that a user has for clusters: a file, read and edited, whatever asks for it"},
	{name: "host/show", may: []string{"host/timetable", "host/alert", "host/cluster", "host/contexts", "host/history", "host/service", "host/words", "abi", "coordination/tree", "coordination/inspect", "host", "host/access", "host/access/users", "host/event", "host/admin", "host/capability", "host/console", "host/explain", "host/grants", "host/plugin/wasm", "host/verify"},
		testsMay: []string{"coordination/jobconfig"},
		why:      "turns reports into text: it is given values and returns strings, so that every table is tested without a host"},
	{name: "host/command", may: []string{"coordination/registry", "coordination/tree", "host", "host/admin", "host/console", "host/contexts", "host/words", "host/times"}, outside: []string{cobra, pflag, yaml},
		why: "what commands have in common: they reach a host by its API or the registry by what package main gives them, and read no settings but the user's contexts"},
	{name: "host/command/operators", may: []string{"abi", "coordination/jobconfig", "coordination/operate", "coordination/tree", "host", "host/admin", "host/cluster", "host/command", "host/console", "host/contexts", "host/event", "host/explain", "host/history", "host/history/lines", "host/service", "host/show", "host/words", "host/times"}, outside: []string{cobra, pflag},
		why: "the commands that look at a cluster and operate it: clients of the API, or of the registry itself"},
	{name: "host/migrate/command", may: []string{"host/command", "host/definition", "host/migrate", "host/words"}, outside: []string{cobra},
		why: "the commands that write definitions of what other schedulers have; of databases it knows a function"},
	{name: "host/alert/command", may: []string{"host/alert", "host/alert/board", "host/alert/send", "host/cluster", "host/command", "host/service", "host/show", "host/words", "host/times"}, outside: []string{cobra},
		why: "the command alert: of the process it has what all commands have"},
	{name: "host/access/command", may: []string{"host/access", "host/access/password", "host/access/users", "host/command", "host/filelock", "host/show", "host/words"}, outside: []string{cobra, term},
		why: "the commands about who may use a host; of the process they have what all commands have"},
	{name: "host/invoke", may: []string{"host/words", "host/grants", "host/capability/dir", "host/capability/kv", "host/capability/offer", "abi", "host/event", "host/run", "host/console", "host/plugin", "host/plugin/process", "host/plugin/wasm", "coordination/tree"}, outside: []string{fsnotify, zap},
		why: "a module and no host around it: what a registry and a schedule would give, it makes up"},
	{name: "host/life", may: []string{"host/deadman", "host/filelock", "host/metrics"}, outside: []string{zap},
		why: "the process proves that it lives, whatever it runs"},
	{name: "host/serverip", may: []string{"host/words"}, why: "an address is chosen from the machine's interfaces, and from nothing of ours"},
	{name: "host/dump", may: []string{"coordination/registry", "coordination/jobconfig", "coordination/tree"}, outside: []string{zap},
		testsMay: []string{"coordination/embedded"},
		why:      "ElasticJob's own way to look at a job; it reads the registry and nothing of the host"},
	{name: "host/ensemble", may: []string{"coordination/zookeeper", "host/tlsconfig"},
		why: "the words in which people say how ZooKeeper is reached, for two programs; it knows neither's flags"},
	{name: "host/session", may: []string{"host/words", "coordination/registry", "coordination/embedded", "coordination/zookeeper", "coordination/tree", "host/admin", "host/deadman", "host/ensemble", "host/migrate"}, outside: []string{zap},
		why: "the only room that makes registries; all others know them by their interface"},
	{name: "test/wasm", why: "an assembler: it knows the binary format, and nothing of ours"},
	{name: "test/hostile", may: []string{"abi", "test/wasm"},
		testsMay: []string{"coordination/registry", "coordination/embedded", "coordination/jobconfig", "coordination/tree", "coordination/operate", "host", "host/catalog", "host/event", "host/grants", "host/capability/dir", "host/capability/offer", "host/plugin", "host/plugin/process", "host/plugin/wasm"}, testsOutside: []string{wazero},
		why: "makes the modules from the contract that guests know; its tests let a whole host run them"},
	{name: "test/child", why: "a server for tests goes with its test, whichever server it is"},
	{name: "test/collector", outside: []string{otlp, protobuf},
		why: "plays somebody else's server: it knows the protocol, and nothing of ours"},
	{name: "test/zkserver", may: []string{"test/child"}, why: "starts somebody else's servers: it knows their files and ports, and nothing of ours"},
	{name: "test/registries", may: []string{"coordination/embedded", "coordination/registry", "coordination/zookeeper", "test/zkserver"}, why: "opens both registries for a test, whatever that does with them"},
	{name: "test/chaos", may: []string{"coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/operate", "host", "host/admin", "host/event", "host/history/lines", "host/verify", "test/zkserver"},
		testsMay: []string{"coordination/zookeeper"},
		why:      "attacks built hosts from outside; it reads what they wrote and what the registry holds"},
	{name: "cmd/chaos", may: []string{"coordination/registry", "coordination/zookeeper", "host/ensemble", "test/chaos"}, outside: []string{cobra, pflag, yaml},
		why: "the program around the chaos room: the laboratory has flags of its own, so that wasmjob does not carry it"},
	{name: "deploy", why: "files of services for the program that writes them: it knows nothing of ours"},
	{name: "host/program", may: []string{"coordination/operate", "coordination/fence", "abi", "strategy", "deploy", "host/words", "coordination/registry", "coordination/jobconfig", "coordination/tree", "host", "host/*", "host/access/*", "host/alert/*", "host/command/*", "host/history/*", "host/migrate/*", "host/plugin/process", "host/plugin/wasm"},
		outside:  []string{cobra, pflag, koanf, memlimit, yaml, zap, xsys, term},
		testsMay: []string{"sdk", "test/wasm"},
		why:      "wires the rooms, and is the only one to read flags, environment and files"},
	{name: "cmd/host", may: []string{"host/program"}, why: "starts the program, under its first name"},
	{name: "cmd/wasmjob", may: []string{"host/program"}, why: "starts the program, under the name that go install gives it"},

	{name: "test/interop/peer", may: []string{"host/event"}, outside: []string{fsnotify},
		why: "runs hosts as processes, ElasticJob's too; of ours it knows the events that a history is made of"},
	{name: "bench/peers/tap", testsMay: []string{"test/zkserver"}, testsOutside: []string{zookeeper},
		why: "listens in on a registry's clients: it knows the protocol, and nothing of who speaks it"},
	{name: "bench/peers", testsMay: []string{"bench/peers/tap", "test/interop/peer", "test/zkserver"}, testsOutside: []string{zookeeper},
		why: "measures hosts of both kinds from outside, through the built program and the registry"},
	{name: "bench/peers/attack", testsMay: []string{"test/interop/peer", "test/zkserver"}, testsOutside: []string{zookeeper},
		why: "does harm to hosts of both kinds from outside, and counts what their items do"},
	{name: "test/interop", testsMay: []string{"abi", "strategy", "host/event", "bench/peers/tap", "test/interop/peer", "test/zkserver"}, testsOutside: []string{zookeeper},
		why: "puts the built program beside ElasticJob; of the rooms it knows events, and the rule by which items are divided"},
	{name: "bench", testsMay: []string{"abi", "coordination/registry", "coordination/embedded", "coordination/tree", "coordination/operate", "host", "host/event", "host/catalog", "host/history", "host/history/*", "host/plugin", "host/plugin/process", "host/trace", "test/mariadbserver", "test/pgserver"},
		why: "measures the rooms put together as host/program does it, without the program around them"},
	{name: "bench/cluster", testsMay: []string{"abi", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/zookeeper", "coordination/tree", "coordination/operate", "host", "host/event", "test/zkserver"},
		why: "counts what hosts ask of a real ZooKeeper; it sees them as host/program does, and their modules are functions"},
	{name: "bench/console", testsMay: []string{"test/pgserver", "test/zkserver"},
		why: "real hosts on real servers, from outside"},
	{name: "bench/overload", testsMay: []string{"abi", "coordination/registry", "coordination/jobconfig", "coordination/embedded", "coordination/zookeeper", "host", "host/event", "test/zkserver"},
		why: "gives a host more than it can do, on both registries; its modules are functions, so that the host is what is measured"},
	{name: "bench/modules", testsMay: []string{"host/event"},
		why: "gives the built program more modules than its memory holds; of the rooms it knows events"},
	{name: "test/mutants/mutated", why: "the copy asks it which mutant is on; the tree itself does not"},
	{name: "test/mutants", may: []string{"test/mutants/mutated"}, why: "changes guards in a copy of the tree and runs its tests; it reads sources as text, and knows no room"},
	{name: "test/cluster", may: []string{"test/zkserver"}, outside: []string{term},
		why: "shows the built program in a cluster; it types what a user would type"},
	{name: "test/demo/server", why: "what the examples talk to is somebody else's: it knows nothing of ours"},
	{name: "test/oidcserver", why: "starts somebody else's provider, a module of its own; it knows its settings, and nothing of ours"},
	{name: "test/mariadbserver", may: []string{"test/child"}, why: "starts somebody else's server: it knows its files and its port, and nothing of ours"},
	{name: "test/pgserver", may: []string{"test/child"}, why: "starts somebody else's server: it knows its files and its port, and nothing of ours"},
	{name: "test/redisserver", may: []string{"test/child"}, why: "starts somebody else's server: it knows its port, and nothing of ours"},
	{name: "test/clients", testsMay: []string{"test/pgserver", "test/redisserver"},
		why: "starts the servers that a test of sdk/sdktest talks to: the module sdk requires nothing of ours but abi"},
	{name: "test/modules", testsOutside: []string{xmod}, why: "gets our modules as others do, from outside of the tree: it knows their names"},
	{name: "test/demo", may: []string{"test/demo/server", "test/pgserver"},
		why: "runs the built program beside the servers of the examples; it types what a user would type"},
	{name: "test/soak", may: []string{"coordination/registry", "coordination/zookeeper", "test/chaos"},
		why: "lets the built program live for hours and measures it; it has the chaos room's stage, and a session to look with"},
	{name: "test/e2e", testsMay: []string{"host/cluster", "abi", "coordination/registry", "coordination/zookeeper", "coordination/tree", "coordination/inspect", "host", "host/event", "host/admin", "host/history", "host/history/lines", "host/service", "host/verify", "test/collector", "test/demo/server", "test/pgserver", "test/wasm", "test/zkserver"}, testsOutside: []string{fsnotify, gozk},
		why: "drives the built program from outside; of the rooms it knows the words that the program's output is made of, and looks into the registry beside it, where it sets the access of nodes as an administrator does"},
}

// anyTest are modules that test files of every room may import.
var anyTest = []string{goleak}

// shared are the modules that live in more than one room, and why. All others
// have one home.
var shared = map[string]string{
	wazero:   "runs guests in host/plugin; host/capability/dir has its flags of files, which WASI's calls come with",
	cobra:    "reads the command line of each program, host/program and cmd/chaos, and that of the commands in the rooms below host/command, host/access/command, host/alert/command and host/migrate/command",
	term:     "passwords are asked for without an echo, by host/program and host/access/command; host/program and test/cluster ask whether they write to a terminal",
	pflag:    "the flags of the same two",
	cron:     "its Schedule is the interface that host/due and a job keep; only host/schedule makes one; host/migrate reads schedules as Kubernetes does",
	zap:      "the logger travels as a value",
	yaml:     "read as ElasticJob's document by coordination, with line numbers by host/definition, which host/migrate writes for, by host/grants and by host/fields for others, of which host/access/users also writes; host/program and cmd/chaos read the settings file",
	otlp:     "host/trace writes what test/collector reads",
	protobuf: "the same two",
	xsys:     "what the standard library lacks of the system: a terminal in host/program, a clock that counts sleep in coordination/zookeeper, timers that kill in host/deadman, limits and filters in host/plugin/process, what the processor can do in host/plugin, the size of a disk in host/history/lines",
	xtime:    "a token bucket: what a job may log and commit in host, what an invocation may log in host/plugin and its processes, what a job may write to the file of guests' logs in host/history/lines, lines for people in host/view",
	fsnotify: "directories are watched by the catalog, one file by host/invoke, the files of an operator by host/watch, a history by tests",
}

// listed is what go list says about a package.
type listed struct {
	ImportPath                         string
	Dir                                string
	Imports, TestImports, XTestImports []string
	Error                              *struct{ Err string }
}

// list asks go list for all packages, for a platform and with build tags.
func list(t *testing.T, env []string, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,Error"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var packages []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

// folders are those with files that git knows, slash separated; nil if that
// cannot be had, as in a tree without its history.
type folders map[string]bool

func (f folders) has(name string) bool { return f == nil || f[name] }

// tracked asks git which folders are the project's: a folder that a user made
// for a first job of their own keeps no rule.
func tracked(t *testing.T) folders {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil || len(out) == 0 {
		return nil
	}
	known := make(folders)
	for name := range strings.SplitSeq(string(out), "\x00") {
		known[path.Dir(name)] = true
	}
	return known
}

func folder(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

func within(mod, importPath string) bool {
	return importPath == mod || strings.HasPrefix(importPath, mod+"/")
}

// standard reports whether the import is of the standard library: its first
// element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func TestLayers(t *testing.T) {
	t.Parallel()
	everywhere := []string{"./...", "./abi/...", "./sdk/..."} // the modules of go.work
	packages := list(t, nil, everywhere...)
	packages = append(packages, list(t, nil, append([]string{"-tags=soak"}, everywhere...)...)...)
	packages = append(packages, list(t, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, everywhere...)...)
	ours := tracked(t)
	used := make(map[string]bool)
	said := make(map[string]bool) // a package is listed once for each platform
	complain := func(format string, args ...any) {
		t.Helper()
		if text := fmt.Sprintf(format, args...); !said[text] {
			said[text] = true
			t.Error(text)
		}
	}
	homes := make(map[string][]string)
	for _, p := range packages {
		name := folder(p.ImportPath)
		if name == "" || !ours.has(name) {
			continue // this test, or somebody's own try
		}
		i := slices.IndexFunc(rooms, func(r room) bool { return matches(r.name, name) })
		if i < 0 {
			complain("%s has no row in the table: say what it may import, and why", name)
			continue
		}
		r := rooms[i]
		used[r.name] = true
		check := func(what string, imports, may, outside []string) {
			for _, imported := range imports {
				switch {
				case standard(imported) || imported == p.ImportPath:
				case within(module, imported):
					if !slices.ContainsFunc(may, func(m string) bool { return matches(m, folder(imported)) }) {
						complain("%s%s imports %s, which is not below it (%s)", name, what, folder(imported), r.why)
					}
				default:
					j := slices.IndexFunc(outside, func(m string) bool { return within(m, imported) })
					if j < 0 {
						complain("%s%s imports %s, which has another home or none yet (%s)", name, what, imported, r.why)
						continue
					}
					if what == "" && !slices.Contains(homes[outside[j]], r.name) {
						homes[outside[j]] = append(homes[outside[j]], r.name)
					}
				}
			}
		}
		check("", p.Imports, r.may, r.outside)
		tests := slices.Concat(p.TestImports, p.XTestImports)
		check(" (tests)", tests, slices.Concat(r.may, r.testsMay), slices.Concat(r.outside, r.testsOutside, anyTest))
	}
	for mod, in := range homes {
		if len(in) > 1 && shared[mod] == "" {
			complain("%s is imported by %s: a module lives in one room, or is listed as shared with the reason", mod, strings.Join(in, " and "))
		}
	}
	if len(used) < 5 {
		complain("go list found packages for %d rows only: it looked at the wrong tree", len(used))
	}
}

// TestTable checks the table itself: rows name rows above them only, so that
// no circle of permissions can come about.
func TestTable(t *testing.T) {
	t.Parallel()
	above := make(map[string]bool)
	for _, r := range rooms {
		if r.why == "" {
			t.Errorf("%s has no reason", r.name)
		}
		for _, m := range r.may {
			ok := above[m]
			for a := range above {
				ok = ok || matches(m, a)
			}
			if !ok {
				t.Errorf("%s may import %s, which is not above it in the table", r.name, m)
			}
		}
		above[r.name] = true
	}
}

// exception lets the files under a folder break a rule.
type exception struct{ under, why string }

func excepted(file string, exceptions []exception) bool {
	return slices.ContainsFunc(exceptions, func(e exception) bool {
		return file == e.under || strings.HasPrefix(file, e.under+"/")
	})
}

// Calls that end or stop the process, and where they are in order.
var (
	mayExit = []exception{
		{"host/program", "the program alone decides when it ends"},
		{"cmd/chaos", "a program of its own"},
		{"test/cluster", "a program of its own"},
		{"test/demo", "a program of its own"},
		{"test/soak", "a program of its own"},
		{"test/mutants", "a program of its own"},
		{"test/oidcserver/op", "a program of its own"},
		{"tools/release", "a program of its own"},
		{"plugins/examples", "a guest is a program; crash and script show what its end looks like"},
	}
	mayPanic = []exception{
		{"host/plugin", "a host function stops its guest with a panic, which the runtime turns into an error"},
		{"plugins/examples", "crash shows what a panic looks like"},
		{"sdk/offset.go", "an item that began again from nothing would be worse than one that ends"},
		{"sdk/internal/border", "a native test's stand-in for a trap, caught by the fake host"},
	}
	maySleep = []exception{
		{"plugins/examples", "slow takes its time on purpose, in a guest"},
	}
	mayInit = []exception{
		{"plugins/examples", "a c-shared module never runs main: guests register their handler in init"},
		{"sdk", "guests register while they are initialised"},
	}
	mayTLS = []exception{
		{"host/tlsconfig", "the one place that says which TLS the host speaks"},
		{"host/capability/dial", "what guests talk to may be old: Go's suites"},
		{"test", "servers for tests"},
	}
	mayAssign = []exception{
		{"sdk", "one guest instance is one process with one handler, registered by name"},
		{"plugins/examples", "a guest instance belongs to one item at a time"},
	}
)

// source is a parsed file.
type source struct {
	name string // slash separated, from the root
	test bool
	ast  *ast.File
}

// sources parses every Go file of the tree, whatever its build tags, by folder.
func sources(t *testing.T) (*token.FileSet, map[string][]source) {
	t.Helper()
	fset := token.NewFileSet()
	ours := tracked(t)
	found := make(map[string][]source)
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || !ours.has(path.Dir(filepath.ToSlash(name))):
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		dir := path.Dir(name)
		found[dir] = append(found[dir], source{name, strings.HasSuffix(name, "_test.go"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fset, found
}

func TestHouseRules(t *testing.T) {
	t.Parallel()
	fset, folders := sources(t)
	at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
	for dir, files := range folders {
		var comments []string
		code := 0
		variables := packageVariables(files)
		for _, f := range files {
			if f.test {
				continue
			}
			code++
			if f.ast.Doc != nil {
				comments = append(comments, f.name)
			}
			for _, decl := range f.ast.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !excepted(f.name, mayInit) {
					t.Errorf("%s: func init: what runs at import is behaviour that nobody asked for", at(fn))
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if literal, ok := n.(*ast.CompositeLit); ok && typeName(literal.Type) == "tls.Config" && !excepted(f.name, mayTLS) {
					t.Errorf("%s: tls.Config: begin with tlsconfig.New(), which has no weak suites", at(literal))
				}
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch name := callee(call); {
				case name == "panic" && !excepted(f.name, mayPanic):
					t.Errorf("%s: panic: return an error", at(call))
				case (name == "os.Exit" || name == "runtime.Goexit" || strings.HasPrefix(name, "log.Fatal") || strings.HasPrefix(name, "log.Panic")) && !excepted(f.name, mayExit):
					t.Errorf("%s: %s: return an error; host/program ends the process", at(call), name)
				case name == "time.Sleep" && !excepted(f.name, maySleep):
					t.Errorf("%s: time.Sleep: wait for the event itself, with a context", at(call))
				}
				return true
			})
			if !excepted(f.name, mayAssign) {
				for _, n := range assignments(f.ast, variables) {
					t.Errorf("%s: package variable %s is written to: no mutable state in packages", at(n), n.Name)
				}
			}
		}
		if code > 0 && len(comments) != 1 {
			t.Errorf("%s: the package has %d package comments %v, want 1", dir, len(comments), comments)
		}
	}
}

// callee is the called function as "name" or "package.name".
func callee(call *ast.CallExpr) string { return typeName(call.Fun) }

// typeName is an identifier as "name" or "package.name".
func typeName(e ast.Expr) string {
	switch fn := e.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			return x.Name + "." + fn.Sel.Name
		}
	}
	return ""
}

// packageVariables are the names of the variables that the package declares.
func packageVariables(files []source) map[string]bool {
	names := make(map[string]bool)
	for _, f := range files {
		if f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					names[name.Name] = name.Name != "_"
				}
			}
		}
	}
	return names
}

// assignments finds where a function of the file writes to one of the package
// variables: by =, ++, to an element or a field, or by taking the address.
// The parser resolves names within a file: a name that it resolved to anything
// local is not the package's.
func assignments(f *ast.File, variables map[string]bool) []*ast.Ident {
	top := make(map[any]bool)
	for _, decl := range f.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok {
			for _, spec := range gen.Specs {
				top[spec] = true
			}
		}
	}
	var found []*ast.Ident
	written := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.Ident:
				if variables[x.Name] && (x.Obj == nil || top[x.Obj.Decl]) {
					found = append(found, x)
				}
				return
			default:
				return
			}
		}
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch s := n.(type) {
			case *ast.AssignStmt:
				if s.Tok != token.DEFINE {
					for _, left := range s.Lhs {
						written(left)
					}
				}
			case *ast.IncDecStmt:
				written(s.X)
			case *ast.UnaryExpr:
				if s.Op == token.AND {
					written(s.X)
				}
			}
			return true
		})
	}
	return found
}

// TestRulesBite feeds the checkers with what they must find, so that a green
// run means something.
func TestRulesBite(t *testing.T) {
	t.Parallel()
	const text = `package p
var state = map[string]int{}
var count int
var other struct{ n int }
func f() {
	state["a"] = 1
	count++
	g(&other.n)
	count := 2
	count = 3
	_ = count
}
func g(state *int) { *state = 1 }
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range assignments(f, packageVariables([]source{{"p.go", false, f}})) {
		names = append(names, n.Name)
	}
	if want := []string{"state", "count", "other"}; !slices.Equal(names, want) {
		t.Errorf("writes to package variables: %v, want %v", names, want)
	}
	call, err := parser.ParseExpr("os.Exit(1)")
	if err != nil {
		t.Fatal(err)
	}
	if got := callee(call.(*ast.CallExpr)); got != "os.Exit" {
		t.Errorf("callee of os.Exit(1) is %q", got)
	}
	if standard("github.com/x/y") || !standard("encoding/json") {
		t.Error("standard library not told from modules")
	}
	if within("a.b/c", "a.b/cd") || !within("a.b/c", "a.b/c/d") {
		t.Error("a module's packages not told from a namesake's")
	}
}
