// Package service implements the operations behind the API, the console and commands, each once. It checks
// permissions, carries out, and records changes.
package service
