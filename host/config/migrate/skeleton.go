package migrate

import (
	"fmt"
	"strings"
)

// Skeleton is the source of a Go module for the job: it compiles, and fails until its body is written.
func (j Job) Skeleton() []byte {
	file := j.File()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("// Command %s is the job %s.", file, comment(j.Name))
	switch {
	case j.Class != "":
		line("// It does what the Java class %s did.", comment(j.Class))
	case j.Command != "":
		line("// It does what this command line did:")
		line("//")
		line("//\t%s", comment(j.Command))
	}
	line("//")
	line("// Build it in a Go module that has github.com/wasmjob/wasmjob/sdk (go get):")
	line("//")
	mode := "-buildmode=c-shared "
	if j.Kind == KindScript {
		mode = ""
	}
	line("//\tGOOS=wasip1 GOARCH=wasm go build %s-o %s.wasm ./%s", mode, file, file)
	line("package main")
	line("")
	switch j.Kind {
	case KindScript:
		b.WriteString(`import (
	"fmt"
	"os"
)

// A script learns about its item in the environment, as JSON in its last
// argument, and as the same JSON on standard input. It ends with 0, or with
// another code if it failed.
func main() {
	fmt.Fprintf(os.Stderr, "item %s of %s: this is not written yet\n",
		os.Getenv("JOB_SHARDING_ITEM"), os.Getenv("JOB_SHARDING_TOTAL_COUNT"))
	os.Exit(1)
}
`)
	case KindDataflow:
		b.WriteString(`import (
	"context"
	"errors"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/dataflow"
)

func init() { dataflow.Register(fetch, process) }

func main() {}

// record is what fetch finds and process works on.
type record struct{}

func fetch(ctx context.Context, sc sdk.ShardingContext) ([]record, error) {
	return nil, errors.New("this is not written yet: fetch the records of item " + sc.ShardingParameter)
}

func process(ctx context.Context, sc sdk.ShardingContext, records []record) error {
	return errors.New("this is not written yet")
}
`)
	default:
		b.WriteString(`import (
	"context"
	"errors"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

// run is one item: sc.ShardingItem of sc.ShardingTotalCount.
func run(ctx context.Context, sc sdk.ShardingContext) error {
	return errors.New("this is not written yet: the work of item " + sc.ShardingParameter)
}
`)
	}
	return []byte(b.String())
}
