package program

import (
	"context"
	"errors"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"

	"github.com/wasmjob/wasmjob/host/alert/keeper"
	"github.com/wasmjob/wasmjob/host/alert/notify"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
)

// wireAlerts makes what looks for alerts, if a file says what is one.
func (s *system) wireAlerts(context.Context) error {
	l := s.loaded
	if l.Alerts == "" {
		return nil
	}
	rules, err := alert.Open(l.Alerts, s.log)
	if err != nil {
		return command.Usage(err)
	}
	sender := notify.New()
	s.onClose("alerts", func() error { sender.Close(); return nil })
	o := keeper.Options{Rules: rules, Namespace: l.Namespace, Server: s.serverIP, Session: s.registry.Session, Send: sender.Send, Logger: s.log}
	if l.History != "" {
		o.History = func() (problem string, since time.Time) {
			state := s.history.State()
			return state.Problem, state.Since
		}
	}
	s.alerts = keeper.New(o)
	s.alertFile = &service.AlertFile{Current: rules.File, Send: sender.Send, Own: s.alerts.Own}
	return alertMetrics(s.metrics, s.alerts.Status)
}

// handlerProblem says why nothing is sent for an error handler; see [host.Config].
func (s *system) handlerProblem(handler string) string {
	file := &alert.File{}
	if s.alertFile != nil {
		file = s.alertFile.Current()
	}
	switch {
	case !file.Unrouted(handler):
		return ""
	case s.alertFile == nil:
		return "this host has no alerts file (--alerts)"
	}
	return "the alerts file has no route for this handler (errorHandlers)"
}

// alertMetrics shows how the sending of alerts fares.
func alertMetrics(m *metrics.Metrics, status func() keeper.Status) error {
	return errors.Join(
		m.GaugeFunc("alerts_keeper", "1 on the host that sends the messages about alerts for all hosts.", func() float64 {
			if status().Keeper {
				return 1
			}
			return 0
		}),
		m.GaugeFunc("alerts_firing", "Active alerts of the cluster, as this host knows them.", func() float64 { return float64(status().Firing) }),
		m.CounterFunc("alerts_sent_total", "Messages about alerts that receivers accepted from this host.", func() float64 { return float64(status().Sent) }),
		m.CounterFunc("alerts_send_failures_total", "Failed attempts of this host to send a message about alerts.", func() float64 { return float64(status().Failed) }),
		m.GaugeFunc("alerts_receivers_failing", "Receivers, by route, that reject this host's messages about alerts, or accepted the last one only for some of its recipients.", func() float64 { return float64(len(status().Failing)) }),
		m.CounterFunc("alerts_events_dropped_total", "Events that were not judged for alerts, because they came too fast.", func() float64 { return float64(status().Dropped) }),
	)
}
