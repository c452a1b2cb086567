// Package console is the web console: pages about the whole cluster, made only from the answers of
// host/control/service.
//
// Pages work without JavaScript: links, and forms that post. Scripts keep them up to date: when the API's
// stream says that jobs have changed, the page is requested again, and differing parts are replaced. Nothing is
// loaded from elsewhere, and pages have no inline script or style, so that the Content-Security-Policy is
// strict.
package console
