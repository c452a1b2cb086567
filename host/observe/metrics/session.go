package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Session is what is known of the registry's session.
type Session struct {
	Connected bool   // to a server
	Trust     string // live, suspect, yield or lost
	// Answered is when the question was sent that was answered last; zero if none was.
	Answered time.Time
	// Reconnects counts the connections besides the first.
	Reconnects int64
}

// Sessions adds what is known of the registry's session. It is asked at every
// scrape, and nil while there is none.
func (m *Metrics) Sessions(session func() *Session) error {
	return m.register(sessionCollector{
		session:    session,
		connected:  m.desc(Gauge, "registry_connected", "1 while the host is connected to a server of the registry."),
		trust:      m.desc(Gauge, "registry_session_trust", "1 for how far the session is trusted, none if there is no session.", Label{"trust", trusts}),
		age:        m.desc(Gauge, "registry_session_answer_age_seconds", "Time since the question was sent that the registry answered last."),
		reconnects: m.desc(Gauge, "registry_reconnects", "Connections that the present session has had besides the first."),
	}, "registry_connected")
}

var trusts = []string{"none", "live", "suspect", "yield", "lost"}

// sessionCollector shows a session.
type sessionCollector struct {
	session                           func() *Session
	connected, trust, age, reconnects *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c sessionCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connected, c.trust, c.age, c.reconnects} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c sessionCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.session()
	level, up := "none", 0.0
	if s != nil {
		level = s.Trust
		if s.Connected {
			up = 1
		}
		if !s.Answered.IsZero() {
			gauge(c.age, time.Since(s.Answered).Seconds())
		}
		gauge(c.reconnects, float64(s.Reconnects))
	}
	gauge(c.connected, up)
	for _, l := range trusts {
		v := 0.0
		if l == level {
			v = 1
		}
		gauge(c.trust, v, l)
	}
}
