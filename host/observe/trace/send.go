package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const (
	// gather is how long spans wait for others, to be sent with them.
	gather = time.Second
	// A collector that is busy or away is asked again after firstPause, then after twice as
	// long each time, up to maxPause.
	firstPause, maxPause = time.Second, 30 * time.Second
	// maxAnswer bounds what is read of an answer, maxQuoted what the log has of it.
	maxAnswer, maxQuoted = 64 << 10, 200
)

// sender sends what is in the queue. It is one goroutine.
type sender struct {
	o      Options
	client *http.Client
	queue  *queue
	stop   <-chan struct{} // closed when nothing more comes
	frame  *otlp.ResourceSpans
	// refused is set when the log has said that the collector refuses spans.
	refused bool
}

// run sends until stop is closed and all is sent, or ctx is done.
func (s *sender) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for {
		stopping := s.wait()
		for batch := s.queue.take(); len(batch) > 0; batch = s.queue.take() {
			s.deliver(ctx, batch)
			if ctx.Err() != nil {
				return
			}
		}
		if stopping {
			return
		}
	}
}

// wait returns when there is something to send, and true when nothing more comes.
func (s *sender) wait() (stopping bool) {
	select {
	case <-s.queue.some:
	case <-s.stop:
		return true
	}
	timer := time.NewTimer(gather)
	defer timer.Stop()
	select {
	case <-s.queue.full:
	case <-timer.C:
	case <-s.stop:
		return true
	}
	return false
}

// deliver sends a batch until it is taken, refused for good, or ctx is done. When nothing
// more comes it is tried once more at most.
func (s *sender) deliver(ctx context.Context, batch []*span) {
	messages := make([]*otlp.Span, len(batch))
	for i, b := range batch {
		messages[i] = b.message()
	}
	s.frame.ScopeSpans[0].Spans = messages
	defer func() { s.frame.ScopeSpans[0].Spans = nil }()
	body, err := s.encode(&collector.ExportTraceServiceRequest{ResourceSpans: []*otlp.ResourceSpans{s.frame}})
	if err != nil {
		s.refuse(len(batch), err)
		return
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		rejected, err := s.post(ctx, body)
		var later *laterError
		switch {
		case err == nil:
			s.taken(len(batch), rejected)
			return
		case !errors.As(err, &later):
			s.refuse(len(batch), err)
			return
		}
		if s.queue.fails(true) {
			s.o.Logger.Warn("traces are not sent: the collector does not take them, and spans are dropped when too many wait",
				zap.String("endpoint", s.o.Endpoint), zap.Error(err))
		}
		if !s.pause(ctx, max(pause, later.after)) {
			s.queue.count(0, len(batch))
			return
		}
	}
}

// pause waits before the next try, and returns false if there is none.
func (s *sender) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-s.stop:
		return false // this was the last try
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stop:
	case <-ctx.Done():
		return false
	}
	return true
}

// taken counts a batch that was taken, but for those that the collector rejects.
func (s *sender) taken(n int, rejected string) {
	if s.queue.fails(false) {
		s.o.Logger.Info("traces are sent again", zap.String("endpoint", s.o.Endpoint))
	}
	s.queue.count(n, 0)
	if rejected != "" && !s.refused {
		s.refused = true
		s.o.Logger.Warn("the collector rejects spans; this is said once", zap.String("endpoint", s.o.Endpoint), zap.String("because", rejected))
	}
}

// refuse counts a batch that is not tried again.
func (s *sender) refuse(n int, err error) {
	s.queue.fails(true)
	s.queue.count(0, n)
	if !s.refused {
		s.refused = true
		s.o.Logger.Warn("spans are dropped: the collector refuses them; this is said once", zap.String("endpoint", s.o.Endpoint), zap.Error(err))
	}
}

func (s *sender) encode(m proto.Message) ([]byte, error) {
	body, err := proto.Marshal(m)
	if err != nil || !s.o.Gzip {
		return body, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// laterError is why a batch should be tried again, after that time at least.
type laterError struct {
	err   error
	after time.Duration
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// post sends a request. rejected says which spans of it the collector did not take, empty
// if it took all.
func (s *sender) post(ctx context.Context, body []byte) (rejected string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.Endpoint, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("User-Agent", "wasmjob/"+s.o.Version)
	for name, value := range s.o.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if s.o.Gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	response, err := s.client.Do(r)
	if err != nil {
		return "", &laterError{err: err}
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", &laterError{err: err}
	}
	switch response.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		return partial(answer), nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // as a date, or absent, it is 0
		return "", &laterError{refusal(response, answer), min(time.Duration(max(seconds, 0))*time.Second, maxPause)}
	}
	return "", refusal(response, answer)
}

// refusal quotes an answer.
func refusal(response *http.Response, answer []byte) error {
	return fmt.Errorf("it answers %s: %q", response.Status, answer[:min(len(answer), maxQuoted)])
}

// partial says what the collector did not take of a request.
func partial(answer []byte) string {
	var m collector.ExportTraceServiceResponse
	if err := proto.Unmarshal(answer, &m); err != nil {
		return ""
	}
	p := m.GetPartialSuccess()
	if p.GetRejectedSpans() == 0 && p.GetErrorMessage() == "" {
		return ""
	}
	return fmt.Sprintf("%d spans: %s", p.GetRejectedSpans(), p.GetErrorMessage())
}
