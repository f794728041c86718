package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Refuse writes the answer to a refused request.
type Refuse func(w http.ResponseWriter, status int, detail string)

// SameSite refuses requests that a browser makes for pages of other sites. It refuses
// reads too, because they cost the server work although the page cannot see the answer.
// It allows the navigation to a page when a user follows a link.
func SameSite(next http.Handler, refuse Refuse) http.Handler {
	deny := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "requests from other web sites are refused")
	})
	cross := http.NewCrossOriginProtection() // allows every GET
	cross.SetDenyHandler(deny)
	checked := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if foreign(r) && !followed(r) {
			deny(w, r)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// foreign tells whether a browser sends the request for a page of another origin.
// Programs send neither header.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return true
	case "same-origin", "none":
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

// followed tells whether the request is the navigation of a browser to a page.
func followed(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// OwnPages is SameSite for servers whose GET requests change state.
func OwnPages(next http.Handler, refuse Refuse) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as := r.WithContext(r.Context())
		as.Method = http.MethodPost // Check allows every GET
		if cross.Check(as) != nil {
			refuse(w, http.StatusForbidden, "requests from other web sites are refused")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SameHost refuses host names, because a foreign page could point its name at loopback
// (DNS rebinding). It allows IP addresses and localhost.
func SameHost(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if net.ParseIP(strings.Trim(host, "[]")) == nil && host != "localhost" {
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("this server is not called %.100q: use its address, such as 127.0.0.1", host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// OnLoopback tells whether an address, host:port, is a loopback address.
func OnLoopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, err
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}
