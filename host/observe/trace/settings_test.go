package trace

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// environ reads variables from a map.
func environ(v map[string]string) func(string) string {
	return func(name string) string { return v[name] }
}

const all = "OTEL_EXPORTER_OTLP_"

func TestEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		want Settings
	}{
		"nothing":      {nil, Settings{Timeout: 10 * time.Second}},
		"all signals":  {map[string]string{all + "ENDPOINT": "http://c:4318"}, Settings{Endpoint: "http://c:4318/v1/traces", Timeout: 10 * time.Second}},
		"below a path": {map[string]string{all + "ENDPOINT": "https://c/otlp/"}, Settings{Endpoint: "https://c/otlp/v1/traces", Timeout: 10 * time.Second}},
		"traces alone": {map[string]string{all + "ENDPOINT": "http://c:4318", all + "TRACES_ENDPOINT": "http://t:4318/take"}, Settings{Endpoint: "http://t:4318/take", Timeout: 10 * time.Second}},
		"the rest": {map[string]string{all + "ENDPOINT": "http://c", all + "HEADERS": "api-key=a%2Cb, x = y ,", all + "TIMEOUT": "1500", all + "COMPRESSION": "gzip", all + "TRACES_COMPRESSION": "none",
			all + "PROTOCOL": "http/protobuf", all + "CERTIFICATE": "ca", all + "CLIENT_CERTIFICATE": "cert", all + "CLIENT_KEY": "key",
			"OTEL_SERVICE_NAME": "nightly", "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,a=b%20c", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "false"},
			Settings{Endpoint: "http://c/v1/traces", Headers: map[string]string{"api-key": "a,b", "x": "y"}, Timeout: 1500 * time.Millisecond, CA: "ca", Cert: "cert", Key: "key",
				Attributes: []Attribute{{"a", "b c"}, {"service.name", "nightly"}}}},
		"none":     {map[string]string{all + "ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, Settings{Timeout: 10 * time.Second}},
		"disabled": {map[string]string{all + "ENDPOINT": "http://c", all + "PROTOCOL": "grpc", "OTEL_SDK_DISABLED": "TRUE"}, Settings{Timeout: 10 * time.Second}},
	} {
		got, err := FromEnvironment(environ(c.env))
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	// Each mistake is said with its variable, and no value of a header.
	_, err := FromEnvironment(environ(map[string]string{all + "TRACES_ENDPOINT": "c:4318", all + "PROTOCOL": "grpc", all + "HEADERS": "authorization: s3cret", all + "TIMEOUT": "10s",
		all + "COMPRESSION": "zstd", "OTEL_RESOURCE_ATTRIBUTES": "a=%zz", "OTEL_TRACES_EXPORTER": "jaeger"}))
	if err == nil {
		t.Fatal("no mistake is found")
	}
	for _, want := range []string{
		all + `TRACES_ENDPOINT: "c:4318" is not the address of a collector; want http://HOST:PORT`,
		all + `PROTOCOL: "grpc" is not spoken here; want http/protobuf`,
		all + `HEADERS: part 1 of the list is not KEY=VALUE`,
		all + `TIMEOUT: "10s" is not a number of milliseconds`,
		all + `COMPRESSION: "zstd" is neither gzip nor none`,
		`OTEL_RESOURCE_ATTRIBUTES: part 1 of the list is not KEY=VALUE`,
		`OTEL_TRACES_EXPORTER: "jaeger" is neither otlp nor none`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	for _, headers := range []string{"a b=s3cret", "x=s3cret%0Ay", "x:y=s3cret"} {
		_, bad := FromEnvironment(environ(map[string]string{all + "HEADERS": headers}))
		if bad == nil || !strings.Contains(bad.Error(), "not the name of a header") || strings.Contains(bad.Error(), "s3cret") {
			t.Errorf("%s: %v", headers, bad)
		}
	}
	if Wanted(environ(nil)) || !Wanted(environ(map[string]string{all + "TRACES_ENDPOINT": "x"})) {
		t.Error("whether traces are wanted")
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a header is shown: %v", err)
	}
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://127.0.0.1:4318": "http://127.0.0.1:4318/v1/traces",
		"http://c/":             "http://c/v1/traces",
		"https://[::1]:1/take":  "https://[::1]:1/take",
		"":                      "is not the address of a collector",
		"c:4318":                "is not the address of a collector",
		"grpc://c:4317":         "is not the address of a collector",
		"http://":               "is not the address of a collector",
		"http://u:s3cret@c":     "OTEL_EXPORTER_OTLP_HEADERS",
		"http://c?key=1":        "has more than a path",
		"http://c:port":         "is not the address of a collector",
	} {
		got, err := ParseEndpoint(text)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "s3cret") {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzEnvironment: whatever the variables hold, they are read or refused, and what is read
// is an address.
func FuzzEnvironment(f *testing.F) {
	f.Add("http://c:4318", "a=b", "1000", "a=%20")
	f.Add("https://c/x?y", "=,=", "-1", ",")
	f.Fuzz(func(t *testing.T, endpoint, headers, timeout, attributes string) {
		s, err := FromEnvironment(environ(map[string]string{all + "ENDPOINT": endpoint, all + "HEADERS": headers, all + "TIMEOUT": timeout, "OTEL_RESOURCE_ATTRIBUTES": attributes}))
		if err != nil {
			return
		}
		if s.Timeout <= 0 || (endpoint == "") != (s.Endpoint == "") {
			t.Errorf("%+v", s)
		}
		if again, err := ParseEndpoint(s.Endpoint); s.Endpoint != "" && (err != nil || again != s.Endpoint) {
			t.Errorf("%q reads back as %q, %v", s.Endpoint, again, err)
		}
		for name := range s.Headers {
			if name == "" {
				t.Error("a header without a name")
			}
		}
	})
}
