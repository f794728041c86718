package httpeffect

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects is the bound of browsers and libraries.
const maxRedirects = 10

// redirects reads how many redirects to follow, 0 by default.
func redirects(config map[string]any) (int, error) {
	v, given := config["redirects"]
	if !given {
		return 0, nil
	}
	n, isInt := v.(int)
	if !isInt || n < 0 || n > maxRedirects {
		return 0, fmt.Errorf("redirects is no number from 0 to %d", maxRedirects)
	}
	return n, nil
}

// redirected returns the request that a redirect asks for. It returns nil if the answer is no
// redirect, or one that is not followed:
//
//	         GET, HEAD, …   others
//	301, 302 same           not followed: a GET would be another call
//	303      GET            GET
//	307, 308 same           same, with the body
//
// Another host gets a GET or HEAD without headers and body, or nothing. A redirect from https to
// http is not followed.
func redirected(req *http.Request, resp *http.Response) (*http.Request, error) {
	method, ok := nextMethod(req.Method, resp.StatusCode)
	if !ok {
		return nil, nil
	}
	to, ok := destination(req.URL, resp.Header.Get("Location"))
	if !ok || req.URL.Scheme == "https" && to.Scheme == "http" {
		return nil, nil
	}
	if !sameHost(req.URL, to) {
		return elsewhere(req, method, to), nil
	}
	next := req.Clone(req.Context())
	next.Method, next.URL, next.Host = method, to, req.Host
	if resp.StatusCode != http.StatusSeeOther {
		return next, rewind(next)
	}
	next.Body, next.GetBody, next.ContentLength = nil, nil, 0
	next.Header.Del("Content-Type")
	return next, nil
}

func nextMethod(method string, status int) (string, bool) {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound:
		return method, safe(method)
	case http.StatusSeeOther:
		if method == http.MethodHead {
			return method, true
		}
		return http.MethodGet, true
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return method, true
	default:
		return "", false
	}
}

// destination resolves a Location, which may be relative.
func destination(from *url.URL, location string) (*url.URL, bool) {
	if location == "" {
		return nil, false
	}
	to, err := from.Parse(location)
	if err != nil {
		return nil, false
	}
	to, err = address(map[string]any{"url": to.String()})
	return to, err == nil
}

// rewind restores the body of a request that is sent again.
func rewind(req *http.Request) (err error) {
	if req.GetBody != nil {
		req.Body, err = req.GetBody()
	}
	return err
}

// elsewhere makes the request to another host, without the manifest's headers and body, which may
// hold secrets.
func elsewhere(req *http.Request, method string, to *url.URL) *http.Request {
	if method != http.MethodGet && method != http.MethodHead {
		return nil
	}
	next := &http.Request{Method: method, URL: to, Header: http.Header{"User-Agent": {agent}}}
	return next.WithContext(req.Context())
}

// sameHost reports whether two URLs reach one service: the same host and port, or https after http
// of the same host.
func sameHost(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	return port(a) == port(b) || port(a) == "80" && port(b) == "443"
}

// trustOnly returns the part of a tls: map for another host: the CA, without the client
// certificate.
func trustOnly(tls any) any {
	given, _ := tls.(map[string]any)
	if ca, found := given["ca"]; found {
		return map[string]any{"ca": ca}
	}
	return nil
}
