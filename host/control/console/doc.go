// Package console is the console: pages that people look at in a browser, about the whole
// cluster, made of what host/control/service answers and nothing else.
//
// Pages are whole without JavaScript: links, and forms that post. Scripts keep them up
// to date: when the API's stream says that jobs have changed, the same page is asked for
// again, and what differs is put in its place. Nothing comes from elsewhere, and no script
// or style stands in a page, so that its Content-Security-Policy is strict.
package console
