// The form of HTML's <input type=email>, with a dot in the domain. An address of this form can't end a header or an SMTP command.
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const pattern = new RegExp(`^[A-Za-z0-9.!#$%&'*+/=?^_\`{|}~-]{1,64}@(?:${label}\\.)+${label}$`)

/** Whether a text is exactly one ASCII address to which mail can be sent. */
export function isMailAddress(text: string): boolean {
  return text.length <= 254 && pattern.test(text)
}

/** Returns the mailbox to which an address belongs, for limits: `a@example.com` for `a+b@Example.com`. */
export function mailboxOf(address: string): string {
  return address.toLowerCase().replace(/\+[^@]*@/, '@')
}
