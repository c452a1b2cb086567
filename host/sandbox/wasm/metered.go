//go:build !unmetered

package wasm

// pays says that code pays for what it does. With the build tag unmetered it does
// not, so that tests can freeze a host.
const pays = true
