// Package service is what the API, the console and commands do: one implementation of
// each operation. It asks who may, carries out, and records what was changed.
package service
