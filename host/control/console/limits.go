package console

import (
	"context"
	"net/http"
	"time"

	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// mostUnder bounds the lines of one key: of more, their number is shown.
const mostUnder = 50

// limitsView is who runs and who waits under the limits over the cluster.
type limitsView struct {
	P       *page
	Permits []permitsOf
	Rates   []rateOf
	// More is how many keys are not shown.
	More int
	// Away is set while the registry, which alone knows it, cannot be read.
	Away bool
}

// permitsOf are those of one key of concurrency.
type permitsOf struct {
	admin.Permits
	// More is how many run or wait besides those that are shown.
	More int
}

// rateOf is one key of rate.
type rateOf struct {
	admin.Rate
	// More is how many wait besides those that are shown.
	More int
}

// limitsPage reads the registry: who has a permit, and who waits, stands nowhere else.
func limitsPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "limits", p.T("nav.limits")
	limits, err := c.o.Service.Limits(ctx)
	if err != nil && kindOf(err).status == http.StatusServiceUnavailable {
		return view{"limits", limitsView{P: p, Away: true}}, nil
	}
	if err != nil {
		return view{}, err
	}
	v := limitsView{P: p, More: limits.More}
	for _, k := range limits.Permits {
		of := permitsOf{k, k.More}
		of.Running, of.More = firstOf(k.Running, of.More)
		of.Waiting, of.More = firstOf(k.Waiting, of.More)
		v.Permits = append(v.Permits, of)
	}
	for _, k := range limits.Rates {
		of := rateOf{Rate: k}
		if per, err := time.ParseDuration(k.Per); err == nil {
			of.Per = words.Duration(per) // 1h, not 1h0m0s
		}
		of.Waiting, of.More = firstOf(k.Waiting, 0)
		v.Rates = append(v.Rates, of)
	}
	return view{"limits", v}, nil
}

// firstOf are the first of a list that are shown, and more with those that are not.
func firstOf[T any](list []T, more int) ([]T, int) {
	n := min(len(list), mostUnder)
	return list[:n], more + len(list) - n
}
