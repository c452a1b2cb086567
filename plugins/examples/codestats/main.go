// Command codestats is a streaming DATAFLOW job that counts the lines of Go
// code in a source tree: those of all regular files named *.go, as
//
//	find /src -type f -name '*.go' -print0 | xargs -0 cat | wc -l
//
// counts them, by newlines. The tree is mounted at /src, or where the job
// parameter says.
//
// Each top-level folder of the tree (a package, as the log calls it) belongs
// to one item, by a hash of its name; the files beside them are the package
// ".". An item walks its packages in the order of their names, some files per
// fetch (fetchDataCount), and keeps in its offset how
// far it got and what it counted. A host that is killed half way through
// therefore loses and repeats nothing that shows: the item goes on behind the
// last batch whose offset is durable, with the sums of that batch.
//
// When an item has no more files it logs the sum of its packages and the
// largest of them, and at level debug the lines of each: the end of the pass. The next fire begins a new pass. So does a
// fire that finds an offset which was made for another number of items or
// another root, since its sums would be of other files.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/dataflow"
)

func init() {
	j := &job{}
	dataflow.Register(j.fetch, j.process)
}

func main() {}

const defaultRoot = "/src"

// file is a record: a path below the root, with slashes.
type file string

// job keeps the open walk between two batches, and nothing that the offset
// does not say as well: after a failure the walk is opened again.
type job struct {
	walk *walk
}

func (j *job) fetch(ctx context.Context, sc sdk.ShardingContext) ([]file, error) {
	root := sc.JobParameter
	if root == "" {
		root = defaultRoot
	}
	mine := func(pkg string) bool { return itemOf(pkg, sc.ShardingTotalCount) == sc.ShardingItem }
	p, err := load()
	switch {
	case errors.Is(err, errNoPass):
	case err != nil:
		slog.Warn("offset is unreadable, counting anew", "error", err)
	case p.finished:
		err = errNoPass
	case p.root != root || p.items != sc.ShardingTotalCount:
		slog.Warn("offset is of another job, counting anew", "root", p.root, "items", p.items)
		err = errNoPass
	}
	if err != nil {
		p = pass{root: root, items: sc.ShardingTotalCount}
		if p.files, err = count(ctx, root, mine); err != nil {
			return nil, err
		}
		slog.Info("pass begins", "root", root, "files", p.files)
		j.walk = nil
	}
	if j.walk == nil || j.walk.root != root || j.walk.last != p.last {
		if p.last != "" {
			slog.Info("pass goes on", "behind", p.last, "files", p.done, "of", p.files)
		}
		j.walk = open(root, p.last, mine)
	}
	var batch []file
	for len(batch) < sc.FetchDataCount {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, err := j.walk.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			j.walk = nil // it would go on behind what could not be read
			return nil, unreadable(root, err)
		}
		batch = append(batch, file(name))
	}
	if len(batch) == 0 {
		finish(&p)
	}
	// With no batch to follow, what is set here is what stays.
	return batch, p.save()
}

func (j *job) process(ctx context.Context, _ sdk.ShardingContext, batch []file) error {
	p, err := load()
	if err != nil {
		return fmt.Errorf("read what fetch has set: %w", err)
	}
	buf := make([]byte, 64<<10)
	before := p.lines
	for _, f := range batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		lines, err := newlines(filepath.Join(p.root, string(f)), buf)
		if err != nil {
			j.walk = nil // look again which files there are
			return unreadable(p.root, err)
		}
		p.add(string(f), lines)
	}
	sdk.Progress(p.done, p.files)
	// A metric that is refused is no reason to count again.
	_ = sdk.Counter("codestats_lines_total", p.lines-before)
	_ = sdk.Counter("codestats_files_total", int64(len(batch)))
	return p.save()
}

// finish ends the pass.
func finish(p *pass) {
	for _, t := range p.packages {
		t.log()
	}
	attrs := []any{"packages", p.reported + int64(len(p.packages)), "files", p.done, "lines", p.lines}
	if p.reported == 0 && len(p.packages) > 1 { // of those that were dropped nothing is known
		attrs = append(attrs, "largest", p.largest())
	}
	slog.Info("pass ends", attrs...)
	*p = pass{root: p.root, items: p.items, finished: true, done: p.done, files: p.done, lines: p.lines}
	sdk.Progress(p.done, p.done)
	_ = sdk.Gauge("codestats_lines", p.lines)
}

// unreadable says what to do about something that cannot be read: a file that
// has gone since the walk saw it is no longer to be counted.
func unreadable(root string, err error) error {
	if _, rootErr := os.Stat(root); rootErr != nil {
		return fmt.Errorf("no source tree: mount one at %s for this job in the host's configuration: %w", root, rootErr)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return sdk.Retry(err)
	}
	return err
}

// newlines counts the newlines of a file.
func newlines(name string, buf []byte) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close() // it was only read
	var lines int64
	for {
		n, err := f.Read(buf)
		lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
