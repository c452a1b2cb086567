package outside_test

import _ "github.com/wasmjob/wasmjob/sdk" // for the guests in testdata, which go mod tidy does not read
