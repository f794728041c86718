package main

import (
	"regexp"
	"strings"
)

// Kubernetes gives every container variables for each service of its namespace:
// a service edda, or edda-nats, makes EDDA_PORT=tcp://10.0.0.1:8700 and
// EDDA_NATS_SERVICE_HOST. They are no settings of ours, whatever the service is
// called; Docker's links have the same shape.
var (
	serviceName  = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))$`)
	serviceURL   = regexp.MustCompile(`^[A-Z0-9_]+_PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	serviceProto = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// serviceLink tells a variable of a service link. A name that a person may write
// as well, such as EDDA_PORT, counts only with a link's value.
func serviceLink(name, value string) bool {
	return serviceName.MatchString(name) || serviceURL.MatchString(name) && serviceProto.MatchString(value)
}

// listeningHint tells who set a port or a host that the address is one setting.
func listeningHint(name string) string {
	if rest := strings.TrimPrefix(name, envPrefix); rest == "PORT" || rest == "HOST" {
		return "; the address to listen on is " + envAddr + ", such as " + defaultAddr
	}
	return ""
}
