// Package security tests authorization: enrolment, renewal and revocation of certificates, policies
// of sites, grants of users, quotas, encryption, and the audit of links.
package security
