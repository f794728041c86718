package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Refuse writes the answer to a request that is refused.
type Refuse func(w http.ResponseWriter, status int, detail string)

// SameSite refuses what pages of other sites ask for, reads too: a page cannot see the
// answer, but what it costs is paid. A link that somebody follows is no such request.
func SameSite(next http.Handler, refuse Refuse) http.Handler {
	deny := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "requests from other web sites are refused")
	})
	cross := http.NewCrossOriginProtection() // which passes every GET
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

// foreign tells whether a browser says that a page of another origin asks. Programs say
// neither.
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

// followed tells whether somebody followed a link, so that the answer is a page of its own.
func followed(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// OwnPages is SameSite for servers whose GETs change something, too.
func OwnPages(next http.Handler, refuse Refuse) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as := r.WithContext(r.Context())
		as.Method = http.MethodPost // the check lets GETs pass
		if cross.Check(as) != nil {
			refuse(w, http.StatusForbidden, "requests from other web sites are refused")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// SameHost refuses names that a foreign page could have pointed at loopback (DNS
// rebinding): the server is called by its address.
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

// OnLoopback tells whether an address, host:port, can be reached from this machine
// only.
func OnLoopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, err
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}
