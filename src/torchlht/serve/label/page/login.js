// The password is sent once; the server answers with a cookie.
document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const password = document.getElementById("password").value;
  const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ password }) });
  if (answer.ok) return location.assign("/");
  const message = document.getElementById("message");
  message.textContent = (await answer.text()).trim();
  message.hidden = false;
});
