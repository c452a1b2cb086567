// Package httpx is what every request to the admin address is held to, and what every
// answer has: limits of size and time, the names that the server answers to,
// where a browser's request may come from, and the headers that keep pages from being
// framed, sniffed and scripted.
package httpx
