// The form that HTML's <input type=email> takes, with a dot in the domain. None of it can end a header or an SMTP command.
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const pattern = new RegExp(`^[A-Za-z0-9.!#$%&'*+/=?^_\`{|}~-]{1,64}@(?:${label}\\.)+${label}$`)

/** Whether mail can be sent to a text: ASCII, one address, nothing around it. */
export function isMailAddress(text: string): boolean {
  return text.length <= 254 && pattern.test(text)
}

/** Whose mailbox it is, as limits count it: `a+b@Example.com` is `a@example.com`'s. */
export function mailboxOf(address: string): string {
  return address.toLowerCase().replace(/\+[^@]*@/, '@')
}
