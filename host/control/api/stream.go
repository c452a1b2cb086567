package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// writeLimit is how long one event of a stream may take to be written.
	writeLimit = 10 * time.Second
	// stillThere is the longest pause between two events of a stream, so that proxies and clients see that it
	// lives.
	stillThere = 15 * time.Second
	// eventPace is the shortest pause between two events of the stream of jobs. All streams share the same
	// beats, so that they send the same events.
	eventPace = 250 * time.Millisecond
	// twice is how far from the begin of following lines may be both in the store and in the stream: hosts'
	// clocks differ, and other hosts are connected only then.
	twice = 30 * time.Second
	// again is how far before the last line that a client has seen its lines start when it reconnects: lines of
	// several hosts are not in the order of their times.
	again = 5 * time.Second
)

type streamInput struct {
	Since  string `query:"since" maxLength:"100" doc:"The id of the last event that was seen. Without it the first event has all jobs."`
	Alerts string `query:"alerts" maxLength:"20" doc:"The version of the alerts that was seen. With it an event alerts comes at once if they have another, and whenever they have changed since."`
	// Last is what a browser sends when it connects again.
	Last string `header:"Last-Event-ID" maxLength:"100" doc:"The same; what a browser sends when it connects again. It goes before since."`
}

type logStreamInput struct {
	Job   string `query:"job" maxLength:"255" doc:"A job's name."`
	Run   string `query:"run" maxLength:"400" doc:"A run's id, job/instant/item."`
	Text  string `query:"text" maxLength:"1000" doc:"Only lines that contain it, regardless of case."`
	Level string `query:"level" maxLength:"10" doc:"Only lines of that level or above: -4 debug, 0 info, 4 warn, 8 error; 0 if it is missing."`
	From  string `query:"from" maxLength:"100" doc:"Begin with the lines since a time, or since so long ago: 10m. Without it the stream begins now."`
	Last  string `header:"Last-Event-ID" maxLength:"100" doc:"The id of the last event that was seen; what a browser sends when it connects again. Lines since 5 s before it come, also those that were seen. It goes before from."`
}

// changes is one event of the stream of jobs.
type changes struct {
	Whole bool          `json:"whole,omitempty" doc:"It has all jobs: those that are not in it are gone."`
	Jobs  []cluster.Job `json:"jobs" doc:"The jobs that have changed. One without a health is gone."`
}

// streaming has the streams, as server-sent events.
func (a *API) streaming() {
	events := func(of string, schema *huma.Schema) func(*huma.Operation) {
		return func(o *huma.Operation) { // huma knows no schema of such an answer
			o.Responses = map[string]*huma.Response{"200": {Description: of, Content: map[string]*huma.MediaType{"text/event-stream": {Schema: schema}}}}
		}
	}
	text := &huma.Schema{Type: huma.TypeString, Description: "Server-sent events, as the HTML standard has them: the lines event, id and data, and an empty line. A line that begins with a colon shows that the stream lives."}
	registry := a.huma.OpenAPI().Components.Schemas
	jobsOf := registry.Schema(typeOf[changes](), true, "JobsEvent")
	lineOf := registry.Schema(typeOf[lineEvent](), true, "LineEvent")
	jobs := looked("/v1/stream", "streamJobs", "look", "Follow jobs as they change",
		events("Events `jobs`; the data of each is JSON as in "+strings.TrimPrefix(jobsOf.Ref, "#/components/schemas/")+". With the parameter alerts, also events `alerts`: their data is the version that `/v1/alerts` has now.", text))
	register(a, jobs, func(_ context.Context, in *streamInput) (*huma.StreamResponse, error) {
		since := cluster.ParseMark(in.Since)
		if in.Last != "" {
			since = cluster.ParseMark(in.Last)
		}
		return a.stream(a.jobStreams, func(ctx context.Context, s *stream) error { return a.streamJobs(ctx, s, since, in.Alerts) }), nil
	})
	lines := looked("/v1/logs/stream", "streamLines", "history", "Follow what guests log",
		events("Events `line`; the data of each is JSON as in "+strings.TrimPrefix(lineOf.Ref, "#/components/schemas/")+".", text))
	register(a, lines, func(ctx context.Context, in *logStreamInput) (*huma.StreamResponse, error) {
		f, err := in.filter()
		if err == nil {
			err = a.o.Service.MayFollow(ctx, in.Job, in.Run)
		}
		if err != nil {
			return nil, problem(err)
		}
		return a.stream(a.lineStreams, func(ctx context.Context, s *stream) error { return a.streamLines(ctx, s, f) }), nil
	})
}

// filter is what is followed; its From is where the stream begins, zero for now.
func (in *logStreamInput) filter() (history.Filter, error) {
	if in.Job == "" && in.Run == "" {
		return history.Filter{}, &service.InputError{Where: "query.job", Problem: "found neither a job nor a run"}
	}
	query := map[string][]string{"run": {in.Run}, "text": {in.Text}}
	for name, value := range map[string]string{"level": in.Level, "from": in.From} {
		if value != "" {
			query[name] = []string{value}
		}
	}
	f, err := cluster.ParseQuery(query)
	if in.Job != "" {
		f.Jobs = []string{cluster.Literal(in.Job)}
	}
	if at, err := time.Parse(time.RFC3339Nano, in.Last); err == nil {
		f.From = at.Add(-again)
	}
	return f, err
}

// stream is one that is open.
type stream struct {
	w    http.ResponseWriter
	conn *http.ResponseController
}

// newStream begins an endless answer with a comment, which clients ignore: compressing middleware holds the
// headers back until there is data.
func newStream(w http.ResponseWriter, contentType, first string) (*stream, error) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Accel-Buffering", "no") // nginx passes events on at once
	s := &stream{w, http.NewResponseController(w)}
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return s, s.write([]byte(first))
}

// write writes and flushes.
func (s *stream) write(text []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if _, err := s.w.Write(text); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if err := s.conn.Flush(); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return nil
}

// frame is an event as it is sent; data is JSON.
func frame(name, id string, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\nid: %s\ndata: %s\n\n", name, id, data)
}

// alive is what is sent when nothing else is.
const alive = ": still there\n\n"

// Streams of jobs send the same to all; one of lines is a request at every other host as well.
func jobStreams() auth.PlacesOptions {
	return auth.PlacesOptions{What: "streams of jobs", All: 1000, Each: 100, Reserved: 100, Retry: 30 * time.Second}
}

func lineStreams() auth.PlacesOptions {
	return auth.PlacesOptions{What: "streams of lines", All: 200, Each: 20, Reserved: 40, Retry: 30 * time.Second}
}

// stream answers with a stream, if there is a place for one more.
func (a *API) stream(places *auth.Places, run func(ctx context.Context, s *stream) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		_, w := humago.Unwrap(c)
		leave, err := places.Take(c.Context())
		if err != nil {
			writeError(w, err)
			return
		}
		defer leave()
		ctx, end := a.until(c.Context())
		defer end()
		if s, err := newStream(w, "text/event-stream", alive); err == nil {
			_ = run(ctx, s) // it ends when the client goes, or the host
		}
	}}
}

// until returns a context that also ends with the host, and soon after the user's permissions change: its cause
// is then an access.Problem. The caller calls end.
func (a *API) until(ctx context.Context) (until context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	joined := make(chan struct{})
	go func() { // joined by end
		defer close(joined)
		look := time.NewTicker(stillThere)
		defer look.Stop()
		for {
			select {
			case <-a.o.Cluster.Ended():
				cancel(cluster.ErrEnded)
				return
			case <-ctx.Done():
				return
			case <-look.C:
				if auth.Outdated(ctx) {
					cancel(auth.NewProblem(auth.NotSignedIn, http.StatusUnauthorized, "who asked is signed out by now, or has other roles; what was done stays done"))
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); <-joined }
}

// streamJobs sends what has changed of jobs since a mark, and, unless alerts is empty, that
// alerts have another version.
func (a *API) streamJobs(ctx context.Context, s *stream, since cluster.Mark, alerts string) error {
	end, err := a.o.Cluster.Watch(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := a.o.Cluster.Refresh(ctx); err != nil {
		return err
	}
	live := time.NewTicker(stillThere)
	defer live.Stop()
	for {
		event, more := a.frames.next(ctx, a.o.Service, &since)
		if len(event) > 0 {
			if err := s.write(event); err != nil {
				return err
			}
		}
		var changed <-chan struct{}
		if alerts != "" {
			var version int64
			version, changed, err = a.o.Service.Alerting().Changed(ctx)
			if now := strconv.FormatInt(version, 10); err == nil && now != alerts {
				alerts = now
				if err := s.write(fmt.Appendf(nil, "event: alerts\ndata: %s\n\n", now)); err != nil {
					return err
				}
			}
		}
		if err := s.rest(ctx, more, changed, live.C); err != nil {
			return err
		}
	}
}

// rest waits for a change of jobs or alerts, and for the next beat after it. It also ends after stillThere:
// unreadable alerts are then read again.
func (s *stream) rest(ctx context.Context, jobs, alerts <-chan struct{}, live <-chan time.Time) error {
	for changed := false; !changed; {
		select {
		case <-jobs:
			changed = true
		case <-alerts:
			changed = true
		case <-live:
			if err := s.write([]byte(alive)); err != nil {
				return err
			}
			changed = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	now := time.Now()
	beat := time.NewTimer(now.Truncate(eventPace).Add(eventPace).Sub(now))
	defer beat.Stop()
	select {
	case <-beat.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// frames caches the newest events of the stream of jobs, which are the same for all clients with the same mark
// and permissions.
type frames struct {
	mu    sync.Mutex
	made  map[frameKey][]byte
	bytes int
}

type frameKey struct {
	since, now cluster.Mark
	patterns   string // joined by /, which no pattern has
}

// mostFrames and mostFrameBytes bound how many events are kept.
const mostFrames, mostFrameBytes = 16, 32 << 20

// next returns the event after a mark, and advances the mark; it is empty if nothing has changed that the
// principal may see. more is closed with the next change.
func (f *frames) next(ctx context.Context, s *service.Service, since *cluster.Mark) (event []byte, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mark, more := s.Mark()
	if mark == *since {
		return nil, more
	}
	key := frameKey{*since, mark, strings.Join(auth.From(ctx).Patterns(operation.View), "/")}
	if event, known := f.made[key]; known {
		*since = mark
		return event, more
	}
	changed := s.ChangedJobs(ctx, *since)
	key.now, *since = changed.Mark, changed.Mark
	if changed.Whole || len(changed.Jobs) > 0 {
		data, err := json.Marshal(changes{changed.Whole, append([]cluster.Job{}, changed.Jobs...)})
		if err != nil { // values of ours always marshal
			return nil, changed.More
		}
		event = frame("jobs", changed.Mark.String(), data)
	}
	if f.bytes += len(event); len(f.made) >= mostFrames || f.bytes > mostFrameBytes {
		clear(f.made)
		f.bytes = len(event)
	}
	f.made[key] = event
	return event, changed.More
}

// streamLines sends the lines since a time, and then those that come.
func (a *API) streamLines(ctx context.Context, s *stream, f history.Filter) error {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	stored := f
	f.From = time.Time{}
	lines := make(chan cluster.Tailed)
	sent := newSent(time.Now())
	following.Go(func() { a.o.Service.Follow(ctx, f, lines) })
	if !stored.From.IsZero() {
		if err := a.backlog(ctx, s, stored, sent); err != nil {
			return err
		}
	}
	live := time.NewTicker(stillThere)
	defer live.Stop()
	for {
		select {
		case l := <-lines:
			if sent.take(&l.Line) {
				continue
			}
			if err := s.line(l); err != nil {
				return err
			}
		case <-live.C:
			clear(sent.keys) // what was to come twice has come
			if err := s.write([]byte(alive)); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// backlog sends the store's lines, up to soon after following began, so that new lines do not keep it from
// ending.
func (a *API) backlog(ctx context.Context, s *stream, f history.Filter, sent *sent) error {
	f.Oldest, f.Limit, f.To = true, history.MaxLimit, sent.began.Add(twice)
	if f.From.After(f.To) {
		return nil
	}
	for {
		page, err := a.o.Service.Lines(ctx, f)
		if err != nil {
			return err
		}
		for _, l := range page.Records {
			sent.add(&l)
			if err := s.line(cluster.Tailed{Line: l}); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		f.After = page.Next
	}
}

// sent are lines from the store that may also come from the stream.
type sent struct {
	began time.Time // following
	keys  map[[sha256.Size]byte]bool
}

func newSent(began time.Time) *sent {
	return &sent{began, make(map[[sha256.Size]byte]bool)}
}

// add remembers a line, unless it is too old to come.
func (s *sent) add(l *history.Line) {
	if l.Time.After(s.began.Add(-twice)) {
		s.keys[lineKey(l)] = true
	}
}

// take reports whether a line was already sent, and forgets it.
func (s *sent) take(l *history.Line) bool {
	key := lineKey(l)
	known := s.keys[key]
	delete(s.keys, key)
	return known
}

func lineKey(l *history.Line) [sha256.Size]byte {
	return sha256.Sum256(fmt.Append(nil, l.RunID, " ", l.Place()))
}

// lineEvent is one event of a stream of lines.
type lineEvent struct {
	cluster.Tailed
	Place string `json:"place" doc:"Where the line stands among those of its run: no other of the run has it. As texts, places are in the order of the lines. A line that comes again has the same."`
}

// line sends a line.
func (s *stream) line(l cluster.Tailed) error {
	data, err := json.Marshal(lineEvent{l, l.Place()})
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return s.write(frame("line", l.Time.Format(time.RFC3339Nano), data))
}
