// Command report is a SIMPLE job that reads the sales of one shop per item and writes a
// report of them. The shop is the item's parameter: item 0 with the parameter "north"
// reads /sales/north/*.csv and writes /reports/north.md.
//
// The files are named by day, in the order in which they are to be read, and grow at
// their end. A fire reads only what is new. The offset is the position: the last file
// and how many bytes of it were read. The totals are key/value state. Both become
// durable in one step, when the handler has returned nil, so that they cannot disagree:
// a run that fails or dies has counted nothing, and the next one reads the same again.
//
// The report is written to a file of another name, which is renamed: who reads the
// report sees the old one or the new one, whole. It is made of the state alone, so
// a run that dies after the rename does no harm: the next one writes it again.
//
// The operator grants the two directories, and state: see plugins/grants.yaml.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

// job are the directories, as the guest sees them.
type job struct{ sales, reports string }

func init() {
	j := job{"/sales", "/reports"}
	simple.Register(j.run)
}

func main() {}

func (j job) run(ctx context.Context, sc sdk.ShardingContext) error {
	shop := sc.ShardingParameter
	if shop == "" {
		return fmt.Errorf("item %d has no parameter, expected the name of a shop", sc.ShardingItem)
	}
	at, err := load()
	if err != nil {
		return err
	}
	files, err := j.files(shop)
	if err != nil {
		return err
	}
	t := make(totals)
	rows := 0
	for i, name := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if name < at.file {
			continue // there is a newer one, so it does not grow any more
		}
		if name > at.file {
			at = position{file: name}
		}
		n, read, err := t.addFile(filepath.Join(j.sales, shop, name), at.bytes)
		if err != nil {
			return err
		}
		rows += n
		at.bytes += read
		sdk.Progress(int64(i+1), int64(len(files)))
	}
	report := path.Join(j.reports, shop+".md")
	if rows == 0 && exists(report) {
		slog.Info("nothing new", "shop", shop, "read", at)
		return nil
	}
	if err := t.addState(); err != nil {
		return err
	}
	if err := replace(report, t.markdown(shop, at)); err != nil {
		return unwritable(j.reports, err)
	}
	_ = sdk.Counter("report_rows_total", int64(rows)) // no reason to fail
	slog.Info("report written", "shop", shop, "new", rows, "read", at, "file", report)
	return at.save()
}

// files are the names of the shop's files, in the order of their days.
func (j job) files(shop string) ([]string, error) {
	list, err := os.ReadDir(filepath.Join(j.sales, shop)) // by name
	if err != nil {
		if _, none := os.Stat(j.sales); none != nil {
			return nil, fmt.Errorf("no sales: grant this job a directory with guest: %s, and run the host with --grants (plugins/grants.yaml does): %w", j.sales, none)
		}
		return nil, fmt.Errorf("shop %q has no folder: %w", shop, err)
	}
	var names []string
	for _, d := range list {
		if filepath.Ext(d.Name()) == ".csv" && !strings.HasPrefix(d.Name(), ".") {
			names = append(names, d.Name())
		}
	}
	return names, nil
}

// unwritable says what to do about a report that cannot be written.
func unwritable(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no place for reports: grant this job a directory with guest: %s and write: true: %w", dir, err)
	}
	return err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// replace writes a file that readers see whole, or not at all.
func replace(name string, data []byte) error {
	temporary := path.Join(path.Dir(name), "."+path.Base(name)+".tmp")
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// position is how far the files were read.
type position struct {
	file  string
	bytes int64
}

func (p position) String() string { return fmt.Sprintf("%s %d", p.file, p.bytes) }

// load reads the offset. Without one the files are read from the first.
func load() (position, error) {
	offset, ok := sdk.Offset()
	if !ok {
		return position{}, nil
	}
	file, number, _ := strings.Cut(string(offset), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return position{}, fmt.Errorf("offset %q is none of this job", offset)
	}
	return position{file, n}, nil
}

func (p position) save() error { return sdk.SetOffset([]byte(p.String())) }

// addFile adds the rows of a file from a position on, and returns how many rows and
// bytes that were. A line without its end is still being written.
func (t totals) addFile(name string, from int64) (rows int, read int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() // it was only read
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, 0, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return 0, 0, err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = len(header)
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, int64(len(data)), nil
		}
		if err == nil && !slices.Equal(fields, header) {
			err = t.addRow(fields)
			rows++
		}
		if err != nil {
			line, _ := r.FieldPos(0)
			return 0, 0, fmt.Errorf("%s, line %d from byte %d on: %w", name, line, from, err)
		}
	}
}
