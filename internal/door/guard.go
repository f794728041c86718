package door

import (
	"fmt"
	"net"
	"net/http"
	"strings"
)

// SameHost refuses names that a foreign page could have pointed at loopback (DNS
// rebinding), and pages of other sites: the server is called by its address.
// refuse writes the answer.
func SameHost(next http.Handler, refuse func(w http.ResponseWriter, status int, detail string)) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "requests from other web sites are refused")
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if net.ParseIP(strings.Trim(host, "[]")) == nil && host != "localhost" {
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("this server is not called %.100q: use its address, such as 127.0.0.1", host))
			return
		}
		inner.ServeHTTP(w, r)
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
