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
	{name: "internal/text/words", why: "how a value, a name or a quotation is worded must not depend on who asks"},
	{name: "internal/tlsconfig", why: "which TLS the host speaks is the same for its server and for all of its clients"},
	{name: "internal/text/times", may: []string{"internal/text/words"}, why: "how people write a time must not depend on where they write it"},
	{name: "strategy", may: []string{"internal/text/words"}, why: "pure functions: who gets which item must not depend on anything but the arguments"},

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
	{name: "coordination/jobconfig", may: []string{"strategy", "internal/text/times", "internal/text/words"}, outside: []string{yaml},
		why: "what a job is set to: hosts, files and ElasticJob's YAML agree on it, and none of it needs the protocol"},
	{name: "coordination/step", may: []string{"coordination/registry"},
		why: "how a step reads and commits is the same for every step; it knows no job"},
	{name: "coordination/tree", may: []string{"coordination/jobconfig", "coordination/registry", "internal/text/words"}, outside: []string{yaml},
		why: "what nodes a job has and what they hold: every room that looks into a registry reads it the same way; ElasticJob's instance nodes are YAML"},
	{name: "coordination/admin/sessions", may: []string{"coordination/registry"},
		why: "who lives as long as a session; it knows nothing of what they do in it"},
	{name: "coordination/recipe/latch", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		why: "Curator's recipe, as Java hosts follow it; it does not know what its turns are for"},
	{name: "coordination/recipe/guarantee", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		why: "the barrier of distributed listeners: its nodes are its own, and no member's step reads them"},
	{name: "coordination/fence", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		testsMay: []string{"coordination/registry/embedded"},
		why:      "whether a registry's numbers grow is asked by hosts at each session, and by who adopts one; no step of a job needs it"},
	{name: "coordination/admin/inspect", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/step", "coordination/tree"},
		why: "what people see of jobs is read from the nodes alone; no host decides anything by it"},
	{name: "coordination/admin/changelog", may: []string{"coordination/registry", "coordination/step", "coordination/tree"},
		testsMay: []string{"coordination/admin/operate", "coordination/registry/registrytest", "test/registries"},
		why:      "which changes are on record is the same for who makes one and for who sees one; no step of the protocol needs it"},
	{name: "coordination/admin/operate", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/step", "coordination/tree", "internal/text/words"},
		testsMay: []string{"coordination/registry/embedded", "coordination/registry/registrytest"},
		why:      "what operators do works on any registry without a host; no member's step needs it"},
	{name: "coordination", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/step", "coordination/tree", "coordination/recipe/latch", "strategy"},
		testsMay: []string{"coordination/registry/embedded", "coordination/registry/registrytest", "coordination/registry/zookeeper", "coordination/recipe/guarantee", "coordination/admin/inspect", "coordination/admin/operate", "coordination/admin/cleanup", "test/zkserver"},
		why:      "decides and never acts; its scenarios are played on a registry"},
	{name: "coordination/admin/cleanup", may: []string{"coordination", "coordination/registry", "coordination/step", "coordination/tree"},
		why: "removes what is unused by a host's view of the job; no step of the protocol needs it"},
	{name: "coordination/registry/registrytest", may: []string{"coordination/registry"},
		testsMay: []string{"coordination/registry/embedded"},
		why:      "the suite for every registry cannot know any of them"},
	{name: "coordination/registry/embedded", may: []string{"coordination/registry"}, outside: []string{bbolt},
		testsMay: []string{"coordination/registry/registrytest"},
		why:      "a registry is an adapter: swapped without anybody noticing"},
	{name: "coordination/registry/zookeeper", may: []string{"coordination/registry"}, outside: []string{gozk, zap, xsys},
		testsMay: []string{"coordination/registry/registrytest", "test/zkserver"},
		why:      "the other registry: the only room that knows how ZooKeeper talks"},

	{name: "host/schedule/due", may: []string{"coordination/tree", "internal/text/words"}, outside: []string{cron}, why: "which instants are due, by the clock and what was begun alone"},
	{name: "host/schedule", may: []string{"internal/text/words"}, outside: []string{cron}, why: "cron dialects, and nothing else, behind one interface"},
	{name: "host/config/signature", may: []string{"internal/text/words"}, outside: []string{minisign}, why: "who signed a file: it knows bytes and keys, and neither modules nor grants"},
	{name: "host/config/ceiling", may: []string{"coordination/jobconfig", "internal/text/words"},
		why: "pure functions: what a job may have at most; whoever enforces a ceiling asks here"},
	{name: "host/config/yamlnode", may: []string{"coordination/jobconfig", "internal/text/words"}, outside: []string{yaml},
		why: "how a file of YAML is taken apart, and its nodes are worded, is the same for definitions and grants"},
	{name: "host/config/ownership", why: "who can change a file that a host trusts: all who read one ask here, and it knows no file"},
	{name: "host/config/fields", may: []string{"internal/text/words", "host/config/yamlnode"}, outside: []string{yaml},
		why: "how a file of settings is read, and how its mistakes are reported, whatever the settings are"},
	{name: "host/config/calendar", may: []string{"host/config/fields", "internal/text/words"}, outside: []string{ical, rrule, yaml},
		why: "sets of days, and the files that they are read from; it knows no job and no clock"},
	{name: "host/config/timetable", may: []string{"coordination/jobconfig", "host/config/calendar", "host/schedule", "internal/text/words"}, outside: []string{cron},
		why: "at which instants a job fires by its configuration: hosts, alerts, explanations and previews ask the same"},
	{name: "host/config/filewatch", outside: []string{fsnotify}, why: "that a file has changed, whatever is in it"},
	{name: "internal/address", why: "which addresses are public is a table; dialers ask it, and the reader of grants"},
	{name: "host/config/grants", may: []string{"abi", "coordination/jobconfig", "internal/address", "host/config/ceiling", "host/config/fields", "host/config/ownership", "host/config/signature", "host/config/filewatch", "internal/text/words", "host/config/yamlnode"}, outside: []string{yaml},
		why: "what an operator grants is read from files, whatever it is granted for; patterns are those of ceilings, sizes those of jobs"},
	{name: "host/sandbox/capability", may: []string{"abi", "host/config/grants", "internal/text/words"},
		testsMay: []string{"host/sandbox/capability/capabilitytest"},
		why:      "handles, quotas and counts, without a word on what stands behind a handle"},
	{name: "host/sandbox/capability/dial", may: []string{"abi", "host/sandbox/capability", "internal/address"}, outside: []string{xsys},
		why: "every connection of a guest is made here: one place checks addresses, names and ownership"},
	{name: "host/sandbox/capability/pipe", may: []string{"abi", "host/sandbox/capability"},
		why: "how bytes get from calls that do not block to a goroutine, whatever the bytes are"},
	{name: "host/sandbox/capability/capabilitytest", may: []string{"abi", "host/config/grants", "host/sandbox/capability"},
		why: "a guest for the tests of all capabilities; it knows none of them"},
	{name: "host/sandbox/capability/http", may: []string{"abi", "internal/text/words", "host/config/grants", "host/sandbox/capability", "internal/address", "host/sandbox/capability/dial", "host/sandbox/capability/pipe"},
		testsMay: []string{"host/sandbox/capability/capabilitytest"},
		why:      "requests, without a word on jobs and items: it has a grant and a run"},
	{name: "host/sandbox/capability/net", may: []string{"abi", "internal/text/words", "host/config/grants", "host/sandbox/capability", "internal/address", "host/sandbox/capability/dial", "host/sandbox/capability/pipe"},
		testsMay: []string{"host/sandbox/capability/capabilitytest"},
		why:      "connections, without a word on jobs and items: it has a grant and a run"},
	{name: "host/sandbox/capability/kv", may: []string{"abi", "host/sandbox/capability"}, testsMay: []string{"host/config/grants"}, why: "the state of an item; how it is committed is the host's"},
	{name: "host/sandbox/capability/env", may: []string{"abi", "host/sandbox/capability"}, why: "reads what is granted, and nothing else"},
	{name: "host/sandbox/capability/dir", may: []string{"abi", "host/sandbox/capability", "host/config/grants"}, outside: []string{wazero}, testsMay: []string{"host/sandbox/capability/capabilitytest"}, why: "what guests do in directories, carried out in the host; of wazero it knows the flags of files"},
	{name: "host/event", may: []string{"abi", "host/config/ceiling", "internal/text/words"},
		testsMay: []string{"coordination/registry"},
		why:      "what a host reports: whoever reads a history needs the words, and not the host"},
	{name: "host/engine/admission/arrivals", why: "who goes next of those that wait, by when they are due; what it is that goes does not matter"},
	{name: "host/engine/failures", may: []string{"coordination/registry", "host/event"}, why: "counts what the registry refuses, by reason; which request that was does not matter"},
	{name: "host/engine/admission/slots", why: "who runs next, by who waits since when and has what; what it is that runs does not matter"},
	{name: "host/engine/admission/imminent", why: "when fires begin, for what is not as urgent; what either is does not matter"},
	{name: "host/engine/admission/inflight", why: "how many commits may be under way, by how long they take; what is committed does not matter"},
	{name: "host/engine/run", may: []string{"abi", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/recipe/guarantee", "host/sandbox/capability/kv", "host/event", "host/engine/admission/slots"}, outside: []string{zap, xsync},
		why: "carries out what was begun: it is given the job as an interface, and decides nothing for it"},
	{name: "host/engine/changes", may: []string{"coordination", "coordination/jobconfig", "coordination/admin/operate", "coordination/admin/changelog", "coordination/registry", "coordination/step", "coordination/tree", "host/event"},
		testsMay: []string{"coordination/registry/embedded"},
		why:      "who changed a job, by what the registry has"},
	{name: "host", may: []string{"host/config/timetable", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/recipe/latch", "coordination/fence", "coordination/admin/inspect", "coordination/admin/operate", "coordination/admin/changelog", "coordination/admin/cleanup", "abi", "host/engine/admission/arrivals", "host/config/ceiling", "host/schedule/due", "host/engine/changes", "host/event", "host/engine/failures", "host/engine/admission/inflight", "host/engine/run", "host/engine/admission/slots", "host/schedule", "internal/text/words"}, outside: []string{cron, zap, xtime},
		testsMay: []string{"coordination/registry/embedded", "coordination/registry/registrytest", "strategy", "host/control/admin", "host/explain", "host/history", "internal/text/i18n", "host/history/verify"},
		why:      "receives registry and modules as values, so that tests hand it functions in a bubble"},
	{name: "host/sandbox/wasm", may: []string{"abi", "internal/text/words"},
		testsMay: []string{"test/wasm", "test/hostile"}, testsOutside: []string{wazero},
		why: "turns bytes into facts and other bytes; its tests run what comes of it, it runs nothing"},
	{name: "host/sandbox/plugin", may: []string{"abi", "host/config/ownership", "host/sandbox/wasm", "internal/text/words"}, outside: []string{wazero, xsys, xtime},
		testsMay: []string{"sdk", "sdk/simple", "sdk/dataflow", "sdk/listener/*", "test/wasm", "test/hostile"},
		why:      "the only room that knows which WebAssembly runtime is in use"},
	{name: "host/sandbox/process", may: []string{"abi", "host/sandbox/plugin", "host/sandbox/wasm"}, outside: []string{cbor, landlock, xsys, xtime},
		why: "runs what host/sandbox/plugin runs in processes that can be killed; it knows the kernel's sandbox and the frames between host and process, and nothing of jobs"},
	{name: "host/config/builtin", may: []string{"abi", "coordination/jobconfig"}, why: "what a host can run without a file; it knows bytes and what a job's settings make of them"},
	{name: "host/config/definition", may: []string{"host/config/calendar", "host/config/timetable", "coordination/jobconfig", "host/config/builtin", "host/config/ceiling", "host/config/grants", "internal/text/words", "host/config/yamlnode"}, outside: []string{yaml},
		testsOutside: []string{jsonschema},
		why:          "turns text into the words of coordination; runs nothing"},
	{name: "host/sandbox/capability/offer", may: []string{"abi", "host/config/grants", "host/sandbox/plugin", "host/sandbox/capability", "host/sandbox/capability/*"},
		testsMay: []string{"host/sandbox/process", "host/sandbox/wasm"}, testsOutside: []string{wazero},
		why: "puts the capabilities of a job together, around whatever runs its guests"},
	{name: "host/engine/catalog", may: []string{"host/config/calendar", "host/config/timetable", "host", "host/config/builtin", "host/sandbox/capability/dir", "host/sandbox/capability/offer", "host/config/ceiling", "host/sandbox/plugin", "host/sandbox/process", "host/sandbox/wasm", "host/config/definition", "host/config/grants", "host/config/signature", "internal/text/words", "coordination/jobconfig", "abi"},
		outside: []string{fsnotify, zap},
		why:     "where files become jobs: it must know both, and which fires first; nobody below may know files"},
	{name: "host/config/filelock", why: "a history, a host's record and an edited file have one writer each; all ask here"},
	{name: "host/history", may: []string{"coordination/tree", "host/config/ceiling", "host/event", "internal/text/words", "abi"}, outside: []string{zap},
		why: "what every store of records has in common; it knows none of them"},
	{name: "host/history/historytest", may: []string{"abi", "host/event", "host/history"},
		why: "the suite for every store cannot know any of them"},
	{name: "host/history/jsonl", may: []string{"host/event", "host/config/filelock", "host/history", "abi"}, outside: []string{zap, xsys, xtime},
		why: "writes records to a file and reads them back; it asks nothing of them"},
	{name: "host/history/database", may: []string{"coordination/jobconfig", "host/config/ceiling", "host/event", "host/config/filelock", "host/history", "host/history/jsonl", "internal/text/times", "internal/text/words", "abi"}, outside: []string{zap, mysql, pgx, sqlite},
		testsMay: []string{"host/history/historytest", "test/mariadbserver", "test/pgserver"}, testsOutside: []string{xsys},
		why: "keeps records in databases: the only room that knows SQL"},
	{name: "host/auth", may: []string{"host/config/ceiling", "host/history", "internal/text/words"}, outside: []string{zap},
		why: "who may do what: whoever carries out an operation asks here, and how somebody signed in is behind an interface; of the history it knows what a change is"},
	{name: "host/auth/httpx", may: []string{"host/auth", "internal/text/words"}, outside: []string{gzhttp},
		why: "what every request is held to, before anybody knows who sent it"},
	{name: "host/auth/cookie", may: []string{"host/auth"},
		why: "what a browser keeps: it knows a session, and not how it came about"},
	{name: "host/auth/ratelimit", why: "who tries too often, by name and address alone"},
	{name: "host/auth/password", outside: []string{xcrypto}, why: "hashes of passwords, and nothing of whose they are"},
	{name: "host/auth/signedout", may: []string{"coordination/registry", "coordination/admin/sessions", "coordination/tree", "host/auth/cookie"}, outside: []string{zap},
		testsMay: []string{"coordination/registry/embedded"},
		why:      "which sessions were signed out at other hosts; it knows the registry, and no request"},
	{name: "host/auth/users", may: []string{"host/auth", "host/auth/password", "host/config/ceiling", "host/config/fields", "host/config/filelock", "host/config/ownership", "host/config/filewatch", "internal/text/words", "internal/text/times"}, outside: []string{yaml, zap},
		why: "the file that says who may do what; it knows no request but by what it carries"},
	{name: "host/auth/mtls", may: []string{"host/config/fields", "host/config/ownership", "host/config/filewatch", "internal/tlsconfig"}, outside: []string{zap},
		testsMay: []string{"host/auth", "host/auth/users"},
		why:      "the files of TLS; who a certificate stands for is the users file's"},
	{name: "host/auth/oidc", may: []string{"host/auth", "host/auth/users", "internal/text/words", "internal/tlsconfig"}, outside: []string{gooidc, oauth2, zap},
		why: "the only room that speaks OpenID Connect; it keeps nothing between two steps"},
	{name: "host/auth/login", may: []string{"host/auth", "host/auth/cookie", "host/auth/oidc", "host/auth/ratelimit", "host/auth/users", "host/auth/httpx", "internal/text/words"}, outside: []string{zap},
		testsMay: []string{"test/oidcserver"},
		why:      "how somebody signs in and out, without a page: the console has those"},
	{name: "host/auth/guard", may: []string{"host/auth", "host/auth/*", "host/history"}, outside: []string{zap},
		why: "puts the rooms of access together, as a host and its tests want them"},
	{name: "internal/text/i18n", why: "which language is wanted, and what stands in a text's places; whose texts they are does not matter"},
	{name: "host/explain", may: []string{"host/config/timetable", "abi", "coordination/tree", "host/event", "host/history", "host/schedule", "internal/text/i18n", "internal/text/words"},
		testsMay: []string{"coordination/jobconfig"},
		why:      "pure: what became of a fire is said by events alone, whoever has them; of the history it knows the records of changes"},
	{name: "host/alert", may: []string{"host/config/timetable", "abi", "coordination/tree", "host/config/ceiling", "host/event", "host/config/fields", "host/config/ownership", "host/schedule", "host/config/filewatch", "internal/text/words", "internal/text/times"}, outside: []string{yaml, zap},
		why: "decides by events and the clock alone what is wrong, who is told, and when; it knows neither registry nor receivers"},
	{name: "host/alert/store", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/admin/sessions", "coordination/step", "coordination/tree", "host/alert", "host/event"},
		testsMay: []string{"coordination/registry/embedded", "coordination/registry/registrytest"},
		why:      "what stands in the registry of alerts; it decides nothing"},
	{name: "host/alert/notify", may: []string{"host/alert", "host/config/fields", "host/config/ownership", "internal/text/words", "internal/tlsconfig"},
		why: "the only room that knows receivers: it is given a message, and knows no host"},
	{name: "host/alert/keeper", may: []string{"coordination/registry", "host/alert", "host/alert/store", "host/event", "internal/text/words"}, outside: []string{zap},
		testsMay: []string{"abi", "coordination/registry/embedded", "coordination/jobconfig", "coordination/admin/operate", "coordination/registry/registrytest", "coordination/tree", "host"},
		why:      "the loop around the judge: it is given events and sessions, and a host does not wait for it"},
	{name: "host/history/verify", may: []string{"host/config/ceiling", "host/event", "internal/text/words", "host/history/jsonl", "abi", "coordination/registry", "coordination/tree"},
		why: "judges by what hosts wrote down and what the registry holds; it must not believe the code that it checks"},
	{name: "host/observe/metrics", may: []string{"abi", "coordination/tree", "host", "host/sandbox/capability", "host/config/ceiling", "host/event"}, outside: []string{prometheus, zap},
		why: "counts what a host reports; who serves the numbers is not its matter"},
	{name: "host/control/admin", may: []string{"host/config/timetable", "internal/text/words", "host/config/ceiling", "host/config/definition", "host/event", "host/config/filelock", "host/config/ownership", "host", "abi", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/fence", "coordination/admin/inspect", "coordination/admin/operate", "coordination/admin/changelog", "host/sandbox/capability", "host/sandbox/capability/kv", "host/auth", "host/auth/users", "host/auth/httpx", "internal/tlsconfig"}, outside: []string{zap},
		testsMay: []string{"coordination/registry/embedded", "host/config/ceiling", "host/observe/metrics"},
		why:      "shows a host from outside; what it shows of all hosts, and what operators do to jobs, goes through the registry; of definitions it knows the defaults"},
	{name: "host/history/changes", may: []string{"coordination/fence", "coordination/admin/changelog", "coordination/registry", "coordination/admin/sessions", "coordination/tree", "host/history"}, outside: []string{zap},
		testsMay: []string{"coordination/registry/registrytest", "test/registries"},
		why:      "takes records of changes from the registry into a history; it knows neither a job nor how one is changed"},
	{name: "host/control/cluster/orphans", may: []string{"coordination/jobconfig", "coordination/registry", "coordination/admin/sessions", "coordination/tree"}, outside: []string{zap},
		testsMay: []string{"test/registries"},
		why:      "what the registry has of jobs that no host speaks for; it does not know how hosts are asked"},
	{name: "host/control/cluster", may: []string{"host/config/timetable", "abi", "coordination/tree", "host", "host/control/admin", "host/event", "host/history", "host/control/cluster/orphans", "internal/text/words", "internal/text/times"},
		testsMay: []string{"host/history/database"},
		why:      "puts together what hosts say; how they are asked it is given as functions, so that tests answer in virtual time"},
	{name: "host/control/cluster/peers", may: []string{"coordination/registry", "coordination/admin/sessions", "coordination/tree", "internal/tlsconfig"}, outside: []string{zap},
		testsMay: []string{"coordination/registry/embedded", "coordination/registry/registrytest", "test/registries"},
		why:      "how hosts find and trust each other, whatever they ask"},
	{name: "host/control/service", may: []string{"abi", "coordination/registry", "coordination/tree", "host", "host/auth", "host/auth/ratelimit", "host/control/admin", "host/alert", "host/alert/store", "host/control/cluster", "host/event", "host/explain", "host/history", "internal/text/words", "internal/text/times"}, outside: []string{zap},
		testsMay: []string{"abi", "coordination/registry", "host/control/service/servicetest"},
		why:      "what people and programs ask for, done in one place whoever asks; it knows neither HTTP nor pages"},
	{name: "host/control/service/servicetest", may: []string{"abi", "coordination/registry/embedded", "coordination/jobconfig", "coordination/registry", "coordination/tree", "host", "host/control/admin", "host/history/changes", "host/alert/store", "host/control/cluster", "host/event", "host/history", "host/history/database", "host/control/cluster/peers", "host/control/service", "host/control/cluster/orphans"}, outside: []string{zap},
		why: "whole hosts for the tests of the service and of what stands on it"},
	{name: "host/control/api", may: []string{"abi", "coordination/jobconfig", "coordination/admin/operate", "coordination/registry", "coordination/tree", "host", "host/auth", "host/auth/httpx", "host/control/admin", "host/alert", "host/alert/store", "host/control/cluster", "host/event", "host/explain", "host/history", "host/control/service", "internal/text/i18n", "internal/text/times", "internal/text/words"}, outside: []string{huma, zap},
		testsMay: []string{"host/alert/store", "coordination/registry", "coordination/registry/embedded", "host/history/database", "host/control/service/servicetest"},
		why:      "the service as HTTP: it decides nothing, and nothing below it knows of HTTP"},
	{name: "host/control/console", may: []string{"host/config/timetable", "abi", "coordination/jobconfig", "coordination/admin/operate", "coordination/registry", "coordination/tree", "host", "host/auth", "host/auth/login", "host/control/admin", "host/alert", "host/control/cluster", "host/event", "host/explain", "host/history", "host/schedule", "host/control/service", "internal/text/i18n", "internal/text/words", "internal/text/times"}, outside: []string{zap},
		testsMay: []string{"host/alert/store", "host/history/database", "host/control/service/servicetest"},
		why:      "shows what host/control/service answers, as pages; it asks no registry, no host and no store by itself"},
	{name: "host/observe/trace", may: []string{"abi", "coordination/tree", "host/event", "internal/tlsconfig"}, outside: []string{otlp, protobuf, zap},
		testsMay: []string{"test/collector"},
		why:      "makes spans of events; a host does not know of it, and no fire waits for it"},
	{name: "host/config/migrate", may: []string{"internal/text/words", "coordination/registry", "coordination/jobconfig", "coordination/tree", "host/config/definition", "host/schedule"}, outside: []string{yaml, cron},
		testsMay: []string{"coordination/registry/embedded"},
		why:      "knows the trees of old ElasticJobs, which nothing else here should; writes definitions, and has them read back"},
	{name: "host/node/deadman", may: []string{"host/config/filelock"}, outside: []string{xsys},
		why: "the kernel's timers and a file: it ends a process, whatever that runs"},
	{name: "host/cli/terminal", may: []string{"internal/text/words", "host/event"}, outside: []string{xtext, zap},
		why: "how a line looks, for all that write lines; it takes them from anybody, and knows nobody"},
	{name: "host/cli/view", may: []string{"internal/text/words", "abi", "host/event", "host/cli/terminal", "coordination/tree"}, outside: []string{zap, xtime},
		why: "which lines a host's events become; it sees the events and nothing else of the host"},
	{name: "host/cli/contexts", may: []string{"host/config/fields", "host/config/filelock", "internal/text/words"}, outside: []string{yaml},
		why: "the names that a user has for clusters: a file, read and edited, whatever asks for it"},
	{name: "host/cli/show", may: []string{"host/config/timetable", "host/alert", "host/control/cluster", "host/cli/contexts", "host/history", "host/control/service", "internal/text/words", "abi", "coordination/tree", "coordination/admin/inspect", "host", "host/auth", "host/auth/users", "host/event", "host/control/admin", "host/sandbox/capability", "host/cli/terminal", "host/explain", "host/config/grants", "host/sandbox/wasm", "host/history/verify"},
		testsMay: []string{"coordination/jobconfig"},
		why:      "turns reports into text: it is given values and returns strings, so that every table is tested without a host"},
	{name: "host/cli/command", may: []string{"coordination/registry", "coordination/tree", "host", "host/control/admin", "host/cli/terminal", "host/cli/contexts", "internal/text/words", "internal/text/times"}, outside: []string{cobra, pflag, yaml},
		why: "what commands have in common: they reach a host by its API or the registry by what package main gives them, and read no settings but the user's contexts"},
	{name: "host/cli/jobs", may: []string{"abi", "coordination/jobconfig", "coordination/admin/operate", "coordination/tree", "host", "host/control/admin", "host/control/cluster", "host/cli/command", "host/cli/terminal", "host/cli/contexts", "host/event", "host/explain", "host/history", "host/history/jsonl", "host/control/service", "host/cli/show", "internal/text/words", "internal/text/times"}, outside: []string{cobra, pflag},
		why: "the commands that look at a cluster and operate it: clients of the API, or of the registry itself"},
	{name: "host/cli/importing", may: []string{"host/cli/command", "host/config/definition", "host/config/migrate", "internal/text/words"}, outside: []string{cobra},
		why: "the commands that write definitions of what other schedulers have; of databases it knows a function"},
	{name: "host/cli/alerts", may: []string{"host/alert", "host/alert/store", "host/alert/notify", "host/control/cluster", "host/cli/command", "host/control/service", "host/cli/show", "internal/text/words", "internal/text/times"}, outside: []string{cobra},
		why: "the command alert: of the process it has what all commands have"},
	{name: "host/cli/users", may: []string{"host/auth", "host/auth/password", "host/auth/users", "host/cli/command", "host/config/filelock", "host/cli/show", "internal/text/words"}, outside: []string{cobra, term},
		why: "the commands about who may use a host; of the process they have what all commands have"},
	{name: "host/cli/invoke", may: []string{"internal/text/words", "host/config/grants", "host/sandbox/capability/dir", "host/sandbox/capability/kv", "host/sandbox/capability/offer", "abi", "host/event", "host/engine/run", "host/cli/terminal", "host/sandbox/plugin", "host/sandbox/process", "host/sandbox/wasm", "coordination/tree"}, outside: []string{fsnotify, zap},
		why: "a module and no host around it: what a registry and a schedule would give, it makes up"},
	{name: "host/node/life", may: []string{"host/node/deadman", "host/config/filelock", "host/observe/metrics"}, outside: []string{zap},
		why: "the process proves that it lives, whatever it runs"},
	{name: "host/node/address", may: []string{"internal/text/words"}, why: "an address is chosen from the machine's interfaces, and from nothing of ours"},
	{name: "host/node/dump", may: []string{"coordination/registry", "coordination/jobconfig", "coordination/tree"}, outside: []string{zap},
		testsMay: []string{"coordination/registry/embedded"},
		why:      "ElasticJob's own way to look at a job; it reads the registry and nothing of the host"},
	{name: "host/node/ensemble", may: []string{"coordination/registry/zookeeper", "internal/tlsconfig"},
		why: "the words in which people say how ZooKeeper is reached, for two programs; it knows neither's flags"},
	{name: "host/node/session", may: []string{"internal/text/words", "coordination/registry", "coordination/registry/embedded", "coordination/registry/zookeeper", "coordination/tree", "host/control/admin", "host/node/deadman", "host/node/ensemble", "host/config/migrate"}, outside: []string{zap},
		why: "the only room that makes registries; all others know them by their interface"},
	{name: "test/wasm", why: "an assembler: it knows the binary format, and nothing of ours"},
	{name: "test/hostile", may: []string{"abi", "test/wasm"},
		testsMay: []string{"coordination/registry", "coordination/registry/embedded", "coordination/jobconfig", "coordination/tree", "coordination/admin/operate", "host", "host/engine/catalog", "host/event", "host/config/grants", "host/sandbox/capability/dir", "host/sandbox/capability/offer", "host/sandbox/plugin", "host/sandbox/process", "host/sandbox/wasm"}, testsOutside: []string{wazero},
		why: "makes the modules from the contract that guests know; its tests let a whole host run them"},
	{name: "test/child", why: "a server for tests goes with its test, whichever server it is"},
	{name: "test/collector", outside: []string{otlp, protobuf},
		why: "plays somebody else's server: it knows the protocol, and nothing of ours"},
	{name: "test/zkserver", may: []string{"test/child"}, why: "starts somebody else's servers: it knows their files and ports, and nothing of ours"},
	{name: "test/registries", may: []string{"coordination/registry/embedded", "coordination/registry", "coordination/registry/zookeeper", "test/zkserver"}, why: "opens both registries for a test, whatever that does with them"},
	{name: "test/chaos", may: []string{"coordination/registry", "coordination/jobconfig", "coordination/tree", "coordination/admin/operate", "host", "host/control/admin", "host/event", "host/history/jsonl", "host/history/verify", "test/zkserver"},
		testsMay: []string{"coordination/registry/zookeeper"},
		why:      "attacks built hosts from outside; it reads what they wrote and what the registry holds"},
	{name: "cmd/chaos", may: []string{"coordination/registry", "coordination/registry/zookeeper", "host/node/ensemble", "test/chaos"}, outside: []string{cobra, pflag, yaml},
		why: "the program around the chaos room: the laboratory has flags of its own, so that wasmjob does not carry it"},
	{name: "deploy", why: "files of services for the program that writes them: it knows nothing of ours"},
	{name: "host/node/program", may: []string{"coordination/admin/operate", "coordination/fence", "abi", "strategy", "deploy", "internal/text/words", "coordination/registry", "coordination/jobconfig", "coordination/tree", "host", "host/engine/*", "host/auth/*", "host/alert/*", "host/cli/command/*", "host/history/*", "host/config/migrate/*", "host/sandbox/process", "host/sandbox/wasm"},
		outside:  []string{cobra, pflag, koanf, memlimit, yaml, zap, xsys, term},
		testsMay: []string{"sdk", "test/wasm"},
		why:      "wires the rooms, and is the only one to read flags, environment and files"},
	{name: "cmd/host", may: []string{"host/node/program"}, why: "starts the program, under its first name"},
	{name: "cmd/wasmjob", may: []string{"host/node/program"}, why: "starts the program, under the name that go install gives it"},

	{name: "test/interop/peer", may: []string{"host/event"}, outside: []string{fsnotify},
		why: "runs hosts as processes, ElasticJob's too; of ours it knows the events that a history is made of"},
	{name: "test/tap", testsMay: []string{"test/zkserver"}, testsOutside: []string{zookeeper},
		why: "listens in on a registry's clients: it knows the protocol, and nothing of who speaks it"},
	{name: "bench/peers", testsMay: []string{"test/tap", "test/interop/peer", "test/zkserver"}, testsOutside: []string{zookeeper},
		why: "measures hosts of both kinds from outside, through the built program and the registry"},
	{name: "bench/peers/attack", testsMay: []string{"test/interop/peer", "test/zkserver"}, testsOutside: []string{zookeeper},
		why: "does harm to hosts of both kinds from outside, and counts what their items do"},
	{name: "test/interop", testsMay: []string{"abi", "strategy", "host/event", "test/tap", "test/interop/peer", "test/zkserver"}, testsOutside: []string{zookeeper},
		why: "puts the built program beside ElasticJob; of the rooms it knows events, and the rule by which items are divided"},
	{name: "bench", testsMay: []string{"abi", "coordination/registry", "coordination/registry/embedded", "coordination/tree", "coordination/admin/operate", "host", "host/event", "host/engine/catalog", "host/history", "host/history/*", "host/sandbox/plugin", "host/sandbox/process", "host/observe/trace", "test/mariadbserver", "test/pgserver"},
		why: "measures the rooms put together as host/node/program does it, without the program around them"},
	{name: "bench/cluster", testsMay: []string{"abi", "coordination", "coordination/registry", "coordination/jobconfig", "coordination/registry/zookeeper", "coordination/tree", "coordination/admin/operate", "host", "host/event", "test/zkserver"},
		why: "counts what hosts ask of a real ZooKeeper; it sees them as host/node/program does, and their modules are functions"},
	{name: "bench/console", testsMay: []string{"test/pgserver", "test/zkserver"},
		why: "real hosts on real servers, from outside"},
	{name: "bench/overload", testsMay: []string{"abi", "coordination/registry", "coordination/jobconfig", "coordination/registry/embedded", "coordination/registry/zookeeper", "host", "host/event", "test/zkserver"},
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
	{name: "test/soak", may: []string{"coordination/registry", "coordination/registry/zookeeper", "test/chaos"},
		why: "lets the built program live for hours and measures it; it has the chaos room's stage, and a session to look with"},
	{name: "test/e2e", testsMay: []string{"host/control/cluster", "abi", "coordination/registry", "coordination/registry/zookeeper", "coordination/tree", "coordination/admin/inspect", "host", "host/event", "host/control/admin", "host/history", "host/history/jsonl", "host/control/service", "host/history/verify", "test/collector", "test/demo/server", "test/pgserver", "test/wasm", "test/zkserver"}, testsOutside: []string{fsnotify, gozk},
		why: "drives the built program from outside; of the rooms it knows the words that the program's output is made of, and looks into the registry beside it, where it sets the access of nodes as an administrator does"},
}

// anyTest are modules that test files of every room may import.
var anyTest = []string{goleak}

// shared are the modules that live in more than one room, and why. All others
// have one home.
var shared = map[string]string{
	wazero:   "runs guests in host/sandbox/plugin; host/sandbox/capability/dir has its flags of files, which WASI's calls come with",
	cobra:    "reads the command line of each program, host/node/program and cmd/chaos, and that of the commands in the rooms below host/cli/command, host/cli/users, host/cli/alerts and host/cli/importing",
	term:     "passwords are asked for without an echo, by host/node/program and host/cli/users; host/node/program and test/cluster ask whether they write to a terminal",
	pflag:    "the flags of the same two",
	cron:     "its Schedule is the interface that host/schedule/due and a job keep; only host/schedule makes one; host/config/migrate reads schedules as Kubernetes does",
	zap:      "the logger travels as a value",
	yaml:     "read as ElasticJob's document by coordination, with line numbers by host/config/definition, which host/config/migrate writes for, by host/config/grants and by host/config/fields for others, of which host/auth/users also writes; host/node/program and cmd/chaos read the settings file",
	otlp:     "host/observe/trace writes what test/collector reads",
	protobuf: "the same two",
	xsys:     "what the standard library lacks of the system: a terminal in host/node/program, a clock that counts sleep in coordination/registry/zookeeper, timers that kill in host/node/deadman, limits and filters in host/sandbox/process, what the processor can do in host/sandbox/plugin, the size of a disk in host/history/jsonl",
	xtime:    "a token bucket: what a job may log and commit in host, what an invocation may log in host/sandbox/plugin and its processes, what a job may write to the file of guests' logs in host/history/jsonl, lines for people in host/cli/view",
	fsnotify: "directories are watched by the catalog, one file by host/cli/invoke, the files of an operator by host/config/filewatch, a history by tests",
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
		{"host/node/program", "the program alone decides when it ends"},
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
		{"host/sandbox/plugin", "a host function stops its guest with a panic, which the runtime turns into an error"},
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
		{"internal/tlsconfig", "the one place that says which TLS the host speaks"},
		{"host/sandbox/capability/dial", "what guests talk to may be old: Go's suites"},
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
					t.Errorf("%s: %s: return an error; host/node/program ends the process", at(call), name)
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
