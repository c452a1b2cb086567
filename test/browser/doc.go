// Package browser lets a real browser do what operators do in the console of real hosts.
// It is a module of its own: the product does not require what drives a browser.
package browser
