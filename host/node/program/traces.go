package program

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
	"github.com/wasmjob/wasmjob/host/observe/trace"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// metricsSetting, guestSeriesSetting and traceSettings are what a host shows of its jobs to other programs.
func metricsSetting() setting {
	return setting{
		key: "metricsJobs", arg: "all|none|N", standard: metrics.AllJobs.String(),
		help: `which jobs have metrics of their own: all, none, or the N that run most; the rest are summed as job_name="other"`,
		set: func(c *Config, s string) (err error) {
			c.MetricsJobs, err = metrics.ParseJobs(s)
			return err
		},
		show: func(c *Config) string { return c.MetricsJobs.String() },
	}
}

// metricsLabelsSetting has a metric show some labels of jobs.
func metricsLabelsSetting() setting {
	return setting{
		key: "metricsLabels", arg: "NAMES",
		help: "labels of jobs that wasmjob_job_labels shows, separated by commas, such as team,tier; at most " + strconv.Itoa(labels.Max),
		set: func(c *Config, s string) (err error) {
			c.MetricsLabels, err = metrics.ParseLabels(s)
			return err
		},
		show: func(c *Config) string { return c.MetricsLabels.String() },
	}
}

// guestSeriesSetting bounds the series of what guests report.
func guestSeriesSetting() setting {
	return setting{
		key: "metricsGuestSeries", arg: "N", standard: strconv.Itoa(metrics.DefaultGuestSeries),
		help: "most series of metrics that guests report, of all jobs together: a counter and a gauge are one, a histogram is 19",
		set: func(c *Config, s string) error {
			n, err := strconv.ParseUint(s, 10, 31)
			if err != nil || n == 0 {
				return fmt.Errorf("%q is not a number of series; want one from 1 to %d", words.Clip(s), 1<<31-1)
			}
			c.GuestSeries = int(n)
			return nil
		},
		show: func(c *Config) string { return strconv.Itoa(c.GuestSeries) },
	}
}

func traceSettings(d defaults) []setting {
	endpoint := textSetting("otlp", "URL", d.otlp, "send traces to the OpenTelemetry collector at this URL, by OTLP over HTTP: http://HOST:4318 for example; off sends none (default: OTEL_EXPORTER_OTLP_ENDPOINT)", func(c *Config) *string { return &c.OTLP })
	endpoint.set = func(c *Config, s string) (err error) {
		if c.OTLP = s; s != "" {
			c.OTLP, err = trace.ParseEndpoint(s)
		}
		return err
	}
	return []setting{offSetting(endpoint), {
		key: "traceRatio", arg: "PART", standard: "1", is: schema.Number(),
		help: "part of the fires whose traces are recorded, from 0 to 1; all hosts of a fire decide alike if it is the same for them",
		set: func(c *Config, s string) error {
			part, err := strconv.ParseFloat(s, 64)
			if err != nil || !(part >= 0 && part <= 1) { // also if it is no number
				return fmt.Errorf("%q is not a part; want a number from 0 to 1, such as 0.1", words.Clip(s))
			}
			c.TraceRatio = part
			return nil
		},
		show: func(c *Config) string { return strconv.FormatFloat(c.TraceRatio, 'g', -1, 64) },
	}}
}

// wireTraces makes what sends traces, if they are wanted.
func (s *system) wireTraces(ctx context.Context) error {
	l := s.loaded
	settings, err := trace.FromEnvironment(s.program.Getenv)
	switch {
	case l.OTLP == "" && err != nil && trace.Wanted(s.program.Getenv):
		// It may be meant for other programs.
		s.log.Warn("no traces are sent: the environment asks for them in a way that is not understood", zap.Error(err))
		return nil
	case l.OTLP == "":
		return nil
	case err != nil:
		return command.Usage(err)
	}
	settings.Endpoint = l.OTLP
	if err := trusted(ownership.Self(), []owned{
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", settings.CA, ownership.Secret},
		{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", settings.Cert, ownership.Secret},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY", settings.Key, ownership.Secret},
	}); err != nil {
		return err
	}
	s.traces, err = trace.Open(ctx, trace.Options{Settings: settings, Ratio: l.TraceRatio, Namespace: l.Namespace, Version: versionText(),
		Instance: rand.Text(), Logger: s.log})
	if err != nil {
		return command.Usage(err)
	}
	s.onClose("traces", func() error {
		if err := s.traces.Close(); err != nil {
			s.log.Warn("the last traces are lost", zap.Error(err))
		}
		return nil
	})
	return nil
}

// traceID, traceparent and called are nil while no traces are sent, so that they cost
// nothing then.
func (s *system) traceID() func(event.Event) string {
	if s.traces == nil {
		return nil
	}
	return s.traces.TraceID
}

func (s *system) traceparent() func(event.Run) string {
	if s.traces == nil {
		return nil
	}
	return s.traces.Traceparent
}

func (s *system) called() func(event.GuestCall) {
	if s.traces == nil {
		return nil
	}
	return s.traces.Called
}

// traceMetrics shows how the traces fare.
func (s *system) traceMetrics() error {
	if s.traces == nil {
		return nil
	}
	m, stats := s.metrics, s.traces.Stats
	return errors.Join(
		m.CounterFunc("trace_spans_sent_total", "Spans that the collector took.", func() float64 { return float64(stats().Sent) }),
		m.CounterFunc("trace_spans_dropped_total", "Spans that the collector did not take, or not in time.", func() float64 { return float64(stats().Dropped) }),
		m.GaugeFunc("trace_spans_queued", "Spans that wait to be sent.", func() float64 { return float64(stats().Queued) }),
		m.GaugeFunc("trace_failing", "1 while the collector does not take spans.", func() float64 {
			if stats().Failing {
				return 1
			}
			return 0
		}))
}
