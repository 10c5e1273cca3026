// The form of HTML's <input type=email>, with a dot in the domain. No address of this form can end a header or an SMTP command.
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const pattern = new RegExp(`^[A-Za-z0-9.!#$%&'*+/=?^_\`{|}~-]{1,64}@(?:${label}\\.)+${label}$`)

/** Whether a text is just one ASCII address that mail can be sent to. */
export function isMailAddress(text: string): boolean {
  return text.length <= 254 && pattern.test(text)
}

/** The mailbox of an address, for limits: `a+b@Example.com` is `a@example.com`'s. */
export function mailboxOf(address: string): string {
  return address.toLowerCase().replace(/\+[^@]*@/, '@')
}
