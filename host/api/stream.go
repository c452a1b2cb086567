package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wasmjob/wasmjob/host/cluster"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service"
)

const (
	// maxStreams bounds how many streams are open at once: more are refused.
	maxStreams = 1000
	// writeLimit is how long one event of a stream may take to be written.
	writeLimit = 10 * time.Second
	// stillThere lies between two events of a stream at most, so that proxies and
	// clients see that it lives.
	stillThere = 15 * time.Second
	// linePace lies between two looks for new lines: a store has no way to say so.
	linePace = 500 * time.Millisecond
)

type streamInput struct {
	Since uint64 `query:"since" doc:"the generation that is known; 0 sends all jobs first"`
	// Last is what a browser sends when it connects again.
	Last string `header:"Last-Event-ID"`
}

type logStreamInput struct {
	Job  string `query:"job" doc:"a job's name"`
	Run  string `query:"run" doc:"a run's id"`
	Text string `query:"text"`
	Last string `header:"Last-Event-ID"`
}

// changes is one event of the stream of jobs.
type changes struct {
	Jobs []cluster.Job `json:"jobs"`
}

// streaming has the streams, as server-sent events.
func (a *API) streaming() {
	events := func(o *huma.Operation) {
		o.Responses = map[string]*huma.Response{"200": {Description: "server-sent events", Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
		}}}
	}
	jobs := operation(http.MethodGet, "/v1/stream", "streamJobs", "look", "Jobs as they change: events `jobs` with a list; one without hosts is gone", events)
	huma.Register(a.huma, jobs, func(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
		return a.stream(func(ctx context.Context, s *stream) error { return a.streamJobs(ctx, s, in) })
	})
	lines := operation(http.MethodGet, "/v1/logs/stream", "streamLines", "history", "What guests log from now on: events `line`", events)
	huma.Register(a.huma, lines, func(ctx context.Context, in *logStreamInput) (*huma.StreamResponse, error) {
		if in.Job == "" && in.Run == "" {
			return nil, problem(&service.InputError{Where: "query.job", Problem: "found neither a job nor a run"})
		}
		return a.stream(func(ctx context.Context, s *stream) error { return a.streamLines(ctx, s, in) })
	})
}

// stream is one that is open.
type stream struct {
	w    http.ResponseWriter
	conn *http.ResponseController
}

// send writes an event; an empty name is a sign of life.
func (s *stream) send(name, id string, v any) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	text := ": still there\n\n"
	if name != "" {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		text = fmt.Sprintf("event: %s\nid: %s\ndata: %s\n\n", name, id, data)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if err := s.conn.Flush(); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return nil
}

// stream answers with a stream, if there is a place for one more.
func (a *API) stream(run func(ctx context.Context, s *stream) error) (*huma.StreamResponse, error) {
	select {
	case a.streams <- struct{}{}:
	default:
		return nil, &huma.ErrorModel{Status: http.StatusServiceUnavailable, Title: http.StatusText(http.StatusServiceUnavailable),
			Detail: fmt.Sprintf("%d streams are open at this host, which is the most; ask another host, or ask again and again instead", maxStreams)}
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer func() { <-a.streams }()
		_, w := humago.Unwrap(c)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // nginx passes events on at once
		s := &stream{w, http.NewResponseController(w)}
		if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
			return
		}
		_ = run(c.Context(), s) // it ends when the client goes, or the host
	}}, nil
}

func (a *API) streamJobs(ctx context.Context, s *stream, in *streamInput) error {
	end, err := a.o.Cluster.Watch(ctx)
	if err != nil {
		return err
	}
	defer end()
	since := in.Since
	if in.Last != "" {
		if _, err := fmt.Sscan(in.Last, &since); err != nil {
			since = 0
		}
	}
	if err := a.o.Cluster.Refresh(ctx); err != nil {
		return err
	}
	alive := time.NewTicker(stillThere)
	defer alive.Stop()
	for {
		jobs, generation, more := a.o.Service.ChangedJobs(ctx, since)
		if generation < since { // of another life of this host
			since = 0
			continue
		}
		if len(jobs) > 0 || since == 0 {
			if err := s.send("jobs", fmt.Sprint(generation), changes{jobs}); err != nil {
				return err
			}
		}
		since = generation
		select {
		case <-more:
		case <-alive.C:
			if err := s.send("", "", nil); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-a.o.Cluster.Ended():
			return nil
		}
	}
}

func (a *API) streamLines(ctx context.Context, s *stream, in *logStreamInput) error {
	f := history.Filter{Run: in.Run, Text: in.Text, Oldest: true, Limit: history.MaxLimit, From: time.Now()}
	if in.Job != "" {
		f.Jobs = []string{service.Escaped(in.Job)}
	}
	if at, err := time.Parse(time.RFC3339Nano, in.Last); err == nil {
		f.From = at.Add(1)
	}
	pace, alive := time.NewTicker(linePace), time.NewTicker(stillThere)
	defer pace.Stop()
	defer alive.Stop()
	for {
		lines, err := a.o.Service.Lines(ctx, f)
		if err != nil {
			return err
		}
		for _, l := range lines.Records {
			if err := s.send("line", l.Time.Format(time.RFC3339Nano), l); err != nil {
				return err
			}
			f.From = l.Time.Add(1)
		}
		select {
		case <-pace.C:
		case <-alive.C:
			if err := s.send("", "", nil); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-a.o.Cluster.Ended():
			return nil
		}
	}
}
