// Command web is a job with net/http.
package main

import (
	"github.com/wasmjob/wasmjob/sdk/simple"
	"github.com/wasmjob/wasmjob/sdk/testdata/guests/web/handler"
)

func init() { simple.Register(handler.Web) }

func main() {}
