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
		return "this host has no file of alerts (--alerts)"
	}
	return "the file of alerts has no route for it (errorHandlers)"
}

// alertMetrics shows how the sending of alerts fares.
func alertMetrics(m *metrics.Metrics, status func() keeper.Status) error {
	return errors.Join(
		m.GaugeFunc("alerts_keeper", "1 on the host that sends the alerts of all hosts.", func() float64 {
			if status().Keeper {
				return 1
			}
			return 0
		}),
		m.GaugeFunc("alerts_firing", "Alerts of the cluster that are not over, as this host knows them.", func() float64 { return float64(status().Firing) }),
		m.CounterFunc("alerts_sent_total", "Messages about alerts that receivers have taken from this host.", func() float64 { return float64(status().Sent) }),
		m.CounterFunc("alerts_send_failures_total", "Attempts of this host to send a message about alerts that failed.", func() float64 { return float64(status().Failed) }),
		m.GaugeFunc("alerts_receivers_failing", "Receivers, by route, that do not take this host's messages about alerts, or took the last one for some of its recipients alone.", func() float64 { return float64(len(status().Failing)) }),
		m.CounterFunc("alerts_events_dropped_total", "Events that came too fast to be looked at for alerts.", func() float64 { return float64(status().Dropped) }),
	)
}
