package chaos

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/history/verify"
)

const samplesFile = "samples.csv"

// A sample is a line of a CSV file. An empty field could not be measured: a host
// that was halted at the time, or a server that was not there.

// hostColumns are what is measured of a host, and the metric that it is. Sizes
// are in bytes.
func hostColumns() [][2]string {
	return [][2]string{
		{"life", ""}, {"age_s", ""},
		{"cpu_s", "process_cpu_seconds_total"}, {"rss", "process_resident_memory_bytes"}, {"heap", "go_memstats_heap_alloc_bytes"},
		// What is live, times the collector's setting.
		{"heap_goal", "go_memstats_next_gc_bytes"},
		{"goroutines", "go_goroutines"}, {"threads", "go_threads"}, {"fds", "process_open_fds"},
	}
}

// serverColumns are what is measured of ZooKeeper, and the line of its mntr.
func serverColumns() [][2]string {
	return [][2]string{
		{"znodes", "zk_znode_count"}, {"watches", "zk_watch_count"}, {"ephemerals", "zk_ephemerals_count"},
		{"connections", "zk_num_alive_connections"}, {"data", "zk_approximate_data_size"}, {"fds", "zk_open_file_descriptor_count"},
	}
}

// bound is by how much a series may be greater at the end than at the begin: a
// part of it, and some more. Of a series that comes in bursts the lower quartile
// is compared and not the median: what leaks stays between them.
type bound struct {
	part, more float64
	bursts     bool
}

func (b bound) of(first float64) float64 { return first*b.part + b.more }

// bounds of the series that must not grow; by their names behind the first dot.
// They are what different moments of a steady cluster differ by.
func bounds() map[string]bound {
	return map[string]bound{
		"rss":         {part: 0.15, more: 16 << 20},
		"heap_goal":   {part: 0.15, more: 8 << 20},
		"goroutines":  {part: 0.05, more: 20, bursts: true},
		"threads":     {part: 0.25, more: 4},
		"fds":         {more: 5},
		"znodes":      {part: 0.02, more: 20},
		"watches":     {part: 0.05, more: 10},
		"ephemerals":  {part: 0.05, more: 10},
		"connections": {more: 1},
	}
}

func (s *soak) head() error {
	columns := []string{"time", "elapsed_s", "fault"}
	for _, h := range s.hosts {
		for _, c := range hostColumns() {
			columns = append(columns, h.name+"."+c[0])
		}
	}
	for _, c := range serverColumns() {
		columns = append(columns, "zk."+c[0])
	}
	return s.writeSample(append(columns, "cache.files", "cache.bytes"))
}

// writeSample writes a line at once, so that it is there whatever comes.
func (s *soak) writeSample(fields []string) error {
	var line bytes.Buffer
	w := csv.NewWriter(&line)
	err := w.Write(fields)
	w.Flush()
	if err == nil {
		_, err = s.samples.Write(line.Bytes())
	}
	return err
}

// sample measures everything once.
func (s *soak) sample(ctx context.Context, fault string, wound *injury) error {
	now := time.Now()
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	fields := []string{now.UTC().Format(time.RFC3339), number(now.Sub(s.start).Round(time.Second).Seconds()), fault}
	for _, h := range s.hosts {
		var values map[string]float64
		if wound == nil || !slices.Contains(wound.hosts, h) {
			var wanted []string
			for _, c := range hostColumns() {
				wanted = append(wanted, c[1])
			}
			var err error
			if values, err = h.gauges(ctx, wanted...); err != nil && wound == nil && ctx.Err() == nil {
				s.say("%s does not show its metrics: %v", h.name, err)
			}
		}
		for _, c := range hostColumns() {
			v, measured := values[c[1]]
			switch {
			case c[0] == "life":
				fields = append(fields, strconv.Itoa(h.lives))
			case c[0] == "age_s":
				fields = append(fields, number(now.Sub(h.life().began).Round(time.Second).Seconds()))
			case measured:
				fields = append(fields, number(v))
			default:
				fields = append(fields, "")
			}
		}
	}
	state := make(map[string]string)
	if text, err := s.own.Ask(ctx, 0, "mntr"); err == nil {
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
			state[name] = value
		}
	}
	for _, c := range serverColumns() {
		v, err := strconv.ParseFloat(state[c[1]], 64)
		if err != nil {
			fields = append(fields, "")
			continue
		}
		fields = append(fields, number(v))
	}
	files, size, err := sizeOf(filepath.Join(s.dir, "cache"))
	if err != nil {
		return err
	}
	return s.writeSample(append(fields, number(float64(files)), number(float64(size))))
}

// sizeOf counts files, which may come and go meanwhile.
func sizeOf(dir string) (files int, size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			files++
			size += info.Size()
		}
		return err
	})
	return files, size, err
}

// series is one column of measurements; at is in seconds since the begin.
type series struct {
	name   string
	at     []float64
	values []float64
}

// Trend is what became of one thing that was measured.
type Trend struct {
	Name string `json:"name"`
	// Samples that count, and the medians of those in the first and in the last
	// quarter of the time; of what comes in bursts, the lower quartiles.
	Samples int     `json:"samples"`
	First   float64 `json:"first"`
	Last    float64 `json:"last"`
	// Slope is the median of the slopes between all pairs, over the whole time:
	// how much more it is at the end than at the begin.
	Slope float64 `json:"slope"`
	// Bound is how much more is allowed; Judged is false for what is only shown.
	Bound  float64 `json:"bound"`
	Judged bool    `json:"judged"`
	Grows  bool    `json:"grows"`
}

// SoakReport is the result of a soak, or of as much of it as there is.
type SoakReport struct {
	Dir string `json:"dir"`
	// Span is from the first measurement to the last, of which Warm is left out.
	Span   time.Duration `json:"spanNs"`
	Warm   time.Duration `json:"warmNs"`
	Trends []Trend       `json:"trends"`
	// Faults that were made, by kind.
	Faults map[string]int `json:"faults"`
	// CPU is how many cores all hosts took, between measurements of one life.
	CPU        float64        `json:"cpu"`
	Violations []string       `json:"violations"`
	History    *verify.Report `json:"history"`
	// Overlaps and Losses count what the histories show of the first two promises.
	Overlaps int `json:"overlaps"`
	Losses   int `json:"losses"`
}

// OK reports whether nothing grew and nothing was violated.
func (r *SoakReport) OK() bool {
	return len(r.Violations) == 0 && r.History.Violations == 0 && !slices.ContainsFunc(r.Trends, func(t Trend) bool { return t.Grows })
}

const (
	// leastSamples that a verdict needs.
	leastSamples = 12
	// youth of a process is left out: it loads and compiles, and takes over.
	youth = 3 * time.Minute
	// soakPeriod: every job fires each half minute, and again so soon after a
	// fault.
	soakPeriod = 90 * time.Second
)

// JudgeSoak weighs what a soak has written into its directory. It may still run.
func JudgeSoak(ctx context.Context, dir string) (*SoakReport, error) {
	r := &SoakReport{Dir: dir, Faults: make(map[string]int)}
	data, err := os.ReadFile(filepath.Join(dir, samplesFile))
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	if err := r.weigh(data); err != nil {
		return nil, fmt.Errorf("soak: %s: %w", samplesFile, err)
	}
	log, err := os.ReadFile(filepath.Join(dir, soakLog))
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	for line := range strings.Lines(string(log)) {
		if _, text, found := strings.Cut(line, violationMark); found {
			r.Violations = append(r.Violations, strings.TrimSpace(text))
		}
		if _, text, found := strings.Cut(line, faultMark); found {
			kind, _, _ := strings.Cut(text, " (")
			r.Faults[kind]++
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "h*", "history.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	r.History, err = verify.Files(ctx, verify.Options{Skew: -1, Period: soakPeriod}, files...)
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	for _, f := range r.History.Findings {
		switch {
		case f.Class != verify.Violated && !strings.Contains(f.Text, "a history is missing"):
		case f.Invariant == verify.OneOwner:
			r.Overlaps++
		case f.Invariant == verify.Accounted:
			r.Losses++
		}
	}
	return r, nil
}

// weigh judges the measurements.
func (r *SoakReport) weigh(data []byte) error {
	// The last line may be cut short.
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return err
	}
	if len(rows) < 2 {
		return errors.New("no measurement is there yet")
	}
	head, rows := rows[0], rows[1:]
	field := func(row []string, name string) (float64, bool) {
		i := slices.Index(head, name)
		if i < 0 {
			return 0, false
		}
		v, err := strconv.ParseFloat(row[i], 64)
		return v, err == nil
	}
	begin, _ := field(rows[0], "elapsed_s")
	end, _ := field(rows[len(rows)-1], "elapsed_s")
	r.Span = seconds(end - begin)
	r.Warm = min(r.Span/8, 10*time.Minute)
	for _, name := range head {
		owner, what, dotted := strings.Cut(name, ".")
		if !dotted || what == "life" || what == "age_s" || what == "cpu_s" {
			continue
		}
		one := series{name: name}
		for _, row := range rows {
			at, ok := field(row, "elapsed_s")
			v, measured := field(row, name)
			age, process := field(row, owner+".age_s")
			if ok && measured && seconds(at-begin) >= r.Warm && (!process || seconds(age) >= min(youth, r.Warm)) {
				one.at, one.values = append(one.at, at), append(one.values, v)
			}
		}
		limit, judged := bounds()[what]
		if what == "fds" && owner == "zk" || owner == "cache" {
			judged = false
		}
		t := one.trend(begin+r.Warm.Seconds(), end, limit)
		t.Judged = judged
		t.Grows = t.Grows && judged
		r.Trends = append(r.Trends, t)
	}
	r.CPU = load(head, rows, field)
	return nil
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// load is SoakReport.CPU.
func load(head []string, rows [][]string, field func([]string, string) (float64, bool)) float64 {
	var sum float64
	for _, name := range head {
		owner, what, _ := strings.Cut(name, ".")
		if what != "cpu_s" {
			continue
		}
		var used, passed float64
		for i := range len(rows) - 1 {
			var v, at, life [2]float64
			ok := true
			for k := range 2 {
				var has [3]bool
				v[k], has[0] = field(rows[i+k], name)
				at[k], has[1] = field(rows[i+k], "elapsed_s")
				life[k], has[2] = field(rows[i+k], owner+".life")
				ok = ok && has == [3]bool{true, true, true}
			}
			if ok && life[0] == life[1] {
				used, passed = used+v[1]-v[0], passed+at[1]-at[0]
			}
		}
		if passed > 0 {
			sum += used / passed
		}
	}
	return sum
}

// trend compares the last quarter with the first, and fits a line that single
// outliers do not bend.
func (s *series) trend(from, to float64, limit bound) Trend {
	t := Trend{Name: s.name, Samples: len(s.values)}
	quarter := (to - from) / 4
	var first, last []float64
	for i, at := range s.at {
		switch {
		case at <= from+quarter:
			first = append(first, s.values[i])
		case at >= to-quarter:
			last = append(last, s.values[i])
		}
	}
	if len(s.values) < leastSamples || len(first) == 0 || len(last) == 0 {
		t.Grows = true // as far as anybody knows
		return t
	}
	middle := 0.5
	if limit.bursts {
		middle = 0.25
	}
	t.First, t.Last = quantile(first, middle), quantile(last, middle)
	var slopes []float64
	for i := range s.at {
		for k := range i {
			slopes = append(slopes, (s.values[i]-s.values[k])/(s.at[i]-s.at[k]))
		}
	}
	t.Slope = quantile(slopes, 0.5) * (to - from)
	t.Bound = limit.of(t.First)
	t.Grows = t.Last-t.First > t.Bound || t.Slope > t.Bound
	return t
}

// quantile is the value below which that part of the values is.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	list := slices.Sorted(slices.Values(values))
	at := part * float64(len(list)-1)
	low, high := list[int(at)], list[int(math.Ceil(at))]
	return low + (high-low)*(at-math.Floor(at))
}

// Write shows the report to people, as a table that a document can take.
func (r *SoakReport) Write(w io.Writer) {
	fmt.Fprintf(w, "%s measured, of which the first %s do not count; the hosts took %.2f cores\n", r.Span.Round(time.Second), r.Warm.Round(time.Second), r.CPU)
	faults := 0
	var kinds []string
	for _, k := range sorted(r.Faults) {
		faults += r.Faults[k]
		kinds = append(kinds, fmt.Sprintf("%s %d", k, r.Faults[k]))
	}
	fmt.Fprintf(w, "%d faults were made: %s\n\n", faults, strings.Join(kinds, ", "))
	fmt.Fprintf(w, "| | First quarter | Last quarter | Slope | Allowed | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, t := range r.Trends {
		allowed, verdict := "–", "–"
		switch {
		case t.Judged && t.Samples < leastSamples:
			fmt.Fprintf(w, "| %s | – | – | – | – | %d samples are too few |\n", t.Name, t.Samples)
			continue
		case t.Judged:
			allowed, verdict = "+"+t.quantity(t.Bound), "flat"
			if t.Grows {
				verdict = "GROWS"
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", t.Name, t.quantity(t.First), t.quantity(t.Last), t.quantity(t.Slope), allowed, verdict)
	}
	runs := 0
	for _, j := range r.History.Jobs {
		runs += j.Runs
	}
	fmt.Fprintf(w, "\n%d jobs, %d items begun, %d overlaps, %d losses; %d violations in the histories, %d unproven, %d overlaps without effect\n",
		len(r.History.Jobs), runs, r.Overlaps, r.Losses, r.History.Violations, r.History.Unproven, r.History.Fenced)
	for _, f := range r.History.Findings {
		if f.Class == verify.Violated {
			fmt.Fprintf(w, "VIOLATED: promise %d, job %s, item %d: %s\n", f.Invariant, f.Job, f.Item, f.Text)
			for _, l := range f.Lines {
				fmt.Fprintf(w, "    %s %s %s\n", l.Place, clock(l.Time), l.Text)
			}
		}
	}
	for _, v := range r.Violations {
		fmt.Fprintf(w, "VIOLATED: %s\n", v)
	}
	if r.OK() {
		fmt.Fprintln(w, "flat, and nothing violated")
	}
}

// quantity shows a value of the series.
func (t Trend) quantity(v float64) string {
	_, what, _ := strings.Cut(t.Name, ".")
	switch what {
	case "rss", "heap", "heap_goal", "data", "bytes":
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
