//go:build unmetered

package wasm

const pays = false
