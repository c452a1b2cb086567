package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// operationTimeout bounds one operation.
	operationTimeout = 15 * time.Second
	// maxBody bounds the body of a request, in bytes.
	maxBody = 64 << 10
)

// Options are the dependencies of the API.
type Options struct {
	Service *service.Service
	Cluster *cluster.Cluster
	// Local and Store answer peers; Verify decides whether a request is a peer's.
	Local  *cluster.Local
	Tail   *cluster.Tail
	Store  history.Store
	Verify func(*http.Request) error
	// Report describes this host; full is with what is read from the registry now.
	Report func(full bool) report.Report
}

// API serves requests below /v1.
type API struct {
	o      Options
	mux    *http.ServeMux
	huma   huma.API
	keys   *keys
	frames *frames
	// Those that are open.
	jobStreams, lineStreams *auth.Places
}

// New returns the API.
func New(o Options) *API {
	a := &API{o: o, mux: http.NewServeMux(), keys: newKeys(), frames: &frames{made: make(map[frameKey][]byte)},
		jobStreams: auth.NewPlaces(jobStreams()), lineStreams: auth.NewPlaces(lineStreams())}
	formats := map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "wasmjob", Version: "1",
				Description: apiText},
			Components: &huma.Components{
				Schemas:         schemas(),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"token": {}}},
			Tags: []*huma.Tag{
				{Name: "look", Description: "What jobs and hosts do now."},
				{Name: "history", Description: "What ran, what was logged, and who changed what."},
				{Name: "operate", Description: "What operators do to jobs, on all their hosts."},
			},
		},
		OpenAPIPath: "/v1/openapi", Formats: formats, DefaultFormat: "application/json",
		Transformers: []huma.Transformer{worded, withUnknown},
	}
	a.huma = humago.New(a.mux, config)
	a.huma.UseMiddleware(findUnknown)
	a.looking()
	a.histories()
	a.operating()
	a.backups()
	a.alerting()
	a.streaming()
	a.login()
	describeFields(a.huma.OpenAPI().Components.Schemas)
	openAnswers(a.huma.OpenAPI())
	describeBodies(a.huma.OpenAPI())
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteProblem(w, &huma.ErrorModel{Status: http.StatusNotFound, Detail: "no such endpoint: " + r.Method + " " + r.URL.Path})
	})
	return a
}

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	a.mux.ServeHTTP(w, r)
}

// OpenAPI is the description of the API, as YAML.
func (a *API) OpenAPI() ([]byte, error) { return a.huma.OpenAPI().YAML() }

// body is an answer.
type body[T any] struct{ Body T }

// none is the input of a request without parameters.
type none struct{}

// ofCatalogue describes an endpoint of the catalogue.
func ofCatalogue(of operation.Operation, id string, more ...func(*huma.Operation)) huma.Operation {
	e := of.Endpoint(id)
	return described(e.Method, e.Path, id, "operate", e.Summary, e.Text, more...)
}

// described describes an endpoint; what makes an id of its path unique.
func described(method, path, id, tag, summary, text string, more ...func(*huma.Operation)) huma.Operation {
	o := huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary, Description: text, MaxBodyBytes: maxBody, BodyReadTimeout: httpx.BodyTimeout,
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable}}
	if strings.Contains(path, "{") {
		o.Errors = append(o.Errors, http.StatusNotFound)
	}
	if !strings.HasSuffix(path, "/stream") {
		o.Errors = append(o.Errors, http.StatusGatewayTimeout)
	}
	for _, m := range more {
		m(&o)
	}
	return o
}

// unknownKey is the context key for a request's unknown parts.
type unknownKey struct{}

func unknownOf(ctx context.Context) []*huma.ErrorDetail {
	list, _ := ctx.Value(unknownKey{}).([]*huma.ErrorDetail)
	return list
}

// keyHeader names a request, so that it can be sent again.
const keyHeader = "Idempotency-Key"

// findUnknown finds parameters of a query that the operation does not know, and a key that it ignores. Huma
// would refuse unknown parameters first; the answer should name all mistakes.
func findUnknown(ctx huma.Context, next func(huma.Context)) {
	var unknown []*huma.ErrorDetail
	knows := func(in, name string) bool {
		return slices.ContainsFunc(ctx.Operation().Parameters, func(p *huma.Param) bool { return p.In == in && p.Name == name })
	}
	var known []string
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	slices.Sort(known)
	u := ctx.URL()
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		if knows("query", name) {
			continue
		}
		expected := "there are none here"
		if len(known) > 0 {
			expected = "expected " + strings.Join(known, ", ") + words.Suggest(name, known)
		}
		unknown = append(unknown, &huma.ErrorDetail{Location: "query." + name, Message: "unknown parameter, " + expected})
	}
	if ctx.Method() != http.MethodGet && ctx.Header(keyHeader) != "" && !knows("header", keyHeader) {
		unknown = append(unknown, &huma.ErrorDetail{Location: "header." + keyHeader, Message: "only a trigger heeds it: sent again, this request would be carried out again"})
	}
	next(huma.WithValue(ctx, unknownKey{}, unknown))
}

// withUnknown adds the unknown parts to the other mistakes of a request.
func withUnknown(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*huma.ErrorModel); ok && p.Status == http.StatusUnprocessableEntity {
		p.Errors = append(p.Errors, unknownOf(ctx.Context())...)
	}
	return v, nil
}

// register registers an operation that refuses what it does not know.
func register[I, O any](a *API, o huma.Operation, do func(context.Context, *I) (*O, error)) {
	huma.Register(a.huma, o, func(ctx context.Context, in *I) (*O, error) {
		if len(unknownOf(ctx)) > 0 {
			return nil, huma.Error422UnprocessableEntity("validation failed")
		}
		return do(ctx, in)
	})
}

// answers are problems that an operation has besides the common ones.
func answers(codes ...int) func(*huma.Operation) {
	return func(o *huma.Operation) { o.Errors = append(o.Errors, codes...) }
}

// large limits how many such operations run at once: their answers grow with the number of jobs or items. A
// place is held until the answer is written.
func (a *API) large(o *huma.Operation) {
	o.Middlewares = append(o.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		leave, err := a.o.Service.Large(ctx.Context())
		if err != nil {
			_, w := humago.Unwrap(ctx)
			writeError(w, err)
			return
		}
		defer leave()
		next(ctx)
	})
}

// looked describes an endpoint that changes nothing.
func looked(path, id, tag, summary string, more ...func(*huma.Operation)) huma.Operation {
	return described(http.MethodGet, path, id, tag, summary, lookTexts()[id], more...)
}

// look registers an operation that answers with a value.
func look[I, O any](a *API, path, id, tag, summary string, do func(ctx context.Context, in *I) (O, error), more ...func(*huma.Operation)) {
	register(a, looked(path, id, tag, summary, more...), func(ctx context.Context, in *I) (*body[O], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		v, err := do(ctx, in)
		if err != nil {
			return nil, problem(err)
		}
		return &body[O]{v}, nil
	})
}

// login describes the one operation below /v1 that the server in front of the API answers (package server),
// because it knows its public address.
func (a *API) login() {
	o := described(http.MethodPost, server.LinkPath, "createLoginLink", "operate", "Make a link that signs a browser in", lookTexts()["createLoginLink"])
	link := a.huma.OpenAPI().Components.Schemas.Schema(typeOf[server.LoginLink](), true, "LoginLink")
	problem := &huma.Response{Description: "A problem (RFC 9457).", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: a.huma.OpenAPI().Components.Schemas.Schema(typeOf[huma.ErrorModel](), true, "")}}}
	o.Responses = map[string]*huma.Response{
		"200": {Description: "The link.", Content: map[string]*huma.MediaType{"application/json": {Schema: link}}},
		"401": problem, "403": problem, "404": problem,
	}
	a.huma.OpenAPI().AddOperation(&o)
}

// act registers an operation that answers with nothing.
func act[I any](a *API, of operation.Operation, id string, do func(ctx context.Context, in *I) error, more ...func(*huma.Operation)) {
	o := ofCatalogue(of, id, func(o *huma.Operation) {
		o.DefaultStatus = http.StatusNoContent
		o.Errors = append(o.Errors, http.StatusConflict)
		for _, m := range more {
			m(o)
		}
	})
	register(a, o, func(ctx context.Context, in *I) (*struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		if err := do(ctx, in); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	})
}
