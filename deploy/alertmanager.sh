#!/bin/sh
# Writes Alertmanager's configuration with the receivers from the environment, then runs a command.
#   alertmanager.sh <alertmanager.yml> <file to write> <command …>
# ALERT_WEBHOOK_URL: receives Alertmanager's JSON by POST. ALERT_MAIL_TO: receives mail from MAIL_FROM, sent through the server of SMTP_URL.
set -eu
source=$1 target=$2
shift 2

# Prints its argument as a YAML string. It uses printf, because echo interprets backslashes in some shells.
quote() { printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"; }
# Prints a percent-encoded part of a URL as a YAML string. Converts each %41 to YAML's escape \x41.
quote_part() {
  case $1 in *%[89A-Fa-f]*) echo 'SMTP_URL: Alertmanager takes only ASCII in user and password' >&2; exit 1 ;; esac
  quote "$1" | sed 's/%\([0-7][0-9A-Fa-f]\)/\\x\1/g'
}
add() { printf '%s\n' "$1" >> "$target"; }

if [ -z "${ALERT_WEBHOOK_URL:-}${ALERT_MAIL_TO:-}" ]; then
  echo 'No one is called when an alert fires. Set ALERT_WEBHOOK_URL or ALERT_MAIL_TO in .env.' >&2
  cp "$source" "$target"
  exec "$@"
fi

sed 's/^  receiver: nobody$/  receiver: operator/' "$source" > "$target"
add '  - name: operator'
if [ -n "${ALERT_WEBHOOK_URL:-}" ]; then
  add "    webhook_configs: [{ url: $(quote "$ALERT_WEBHOOK_URL"), send_resolved: true }]"
fi
if [ -n "${ALERT_MAIL_TO:-}" ]; then
  : "${SMTP_URL:?ALERT_MAIL_TO needs a mail server: set SMTP_URL}" "${MAIL_FROM:?ALERT_MAIL_TO needs a sender: set MAIL_FROM}"
  rest=${SMTP_URL#*://}
  rest=${rest%%[/?]*}
  host=${rest##*@}
  # On port 465, Alertmanager uses TLS from the start of the connection.
  case $host in
    *:*) ;;
    *) case $SMTP_URL in smtps://*) host=$host:465 ;; *) host=$host:587 ;; esac ;;
  esac
  add '    email_configs:'
  add "      - to: $(quote "$ALERT_MAIL_TO")"
  add "        from: $(quote "$MAIL_FROM")"
  add "        smarthost: $(quote "$host")"
  add '        send_resolved: true'
  case $rest in
    *@*)
      login=${rest%@*}
      user=$(quote_part "${login%%:*}")
      add "        auth_username: $user"
      case $login in *:*) password=$(quote_part "${login#*:}"); add "        auth_password: $password" ;; esac
      ;;
  esac
fi
exec "$@"
