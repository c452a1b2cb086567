// Package openapi pins the generator with which a test makes a client from the API's
// description, and what such a client imports. It is a module of its own, so that none of
// it is a dependency of wasmjob. TestGeneratedClient (test/e2e) uses it.
package openapi

import _ "github.com/oapi-codegen/runtime" // what generated clients import
