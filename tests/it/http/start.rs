//! The start: configurations that are refused with one line, and what is looked at before serving.

use std::process::{Command, Output};

use loadtest::servers::{RedisOptions, RedisServer};
use stockade::app::{App, StartError};

use super::{ADMIN_TOKEN, JWT_SECRET, config};

/// Runs the program to its end, with no configuration of the caller's environment.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STOCKADE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn a_bad_configuration_is_one_clear_line_and_a_usage_error() {
    let admin = ["serve", "--admin-token", ADMIN_TOKEN];
    let both = [
        "--trust-buyer-header",
        "--buyer-jwt-hs256-secret",
        JWT_SECRET,
    ];
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&[], &[], &["command"]),
        (&["sell"], &[], &["sell"]),
        (&["serve"], &[], &["admin token", "STOCKADE_ADMIN_TOKEN"]),
        (
            &["serve", "--admin-token", "sesame"],
            &[],
            &["admin token", "16"],
        ),
        (&admin, &[], &["buyers", "--trust-buyer-header"]),
        (&admin, &both, &["buyers", "one"]),
        (&admin, &["--buyer-jwt-hs256-secret", "sesame"], &["32"]),
        (
            &admin,
            &["--buyer-jwt-eddsa-public-key", "/nowhere"],
            &["/nowhere"],
        ),
        (&admin, &["--listen", "localhost"], &["--listen"]),
        (
            &admin,
            &["--redis-connections", "0"],
            &["--redis-connections", "1..="],
        ),
        (&admin, &["--backlog-max=-1"], &["--backlog-max"]),
        (&admin, &["--drain-seconds", "1.5"], &["--drain-seconds"]),
        (&admin, &["--log-format", "xml"], &["--log-format"]),
        (
            &admin,
            &["--trust-buyer-header", "--log", "a=b=c"],
            &["--log"],
        ),
        (&admin, &["--no-such-flag"], &["--no-such-flag"]),
        (&["audit", "0"], &[], &["SALE"]),
    ];
    for (arguments, more, words) in cases {
        let arguments = [*arguments, *more].concat();
        let output = run(&arguments, &[]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.starts_with("stockade: "), "{arguments:?}: {error}");
        for word in *words {
            assert!(
                error.contains(word),
                "{arguments:?} without {word}: {error}"
            );
        }
        for secret in ["sesame", JWT_SECRET, ADMIN_TOKEN] {
            assert!(
                !error.contains(secret),
                "{arguments:?} shows a secret: {error}"
            );
        }
    }
}

#[test]
fn variables_are_flags_and_their_secrets_are_not_shown() {
    let secret = "a-secret-in-a-variable";
    let variables = [
        ("STOCKADE_ADMIN_TOKEN", secret),
        ("STOCKADE_BUYER_JWT_HS256_SECRET", secret),
        ("STOCKADE_DATABASE_URL", secret),
        ("STOCKADE_REDIS_URL", secret),
        ("STOCKADE_REDIS_CONNECTIONS", "none"),
    ];
    let output = run(&["serve"], &variables);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{error}");
    assert!(error.contains("--redis-connections"), "{error}");
    let help = run(&["serve", "--help"], &variables);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("STOCKADE_ADMIN_TOKEN") && help.contains("STOCKADE_COMMIT_WAIT_MS"));
    assert!(!help.contains(secret) && !error.contains(secret));
    let version = run(&["--version"], &[]);
    let version = String::from_utf8(version.stdout).unwrap();
    assert_eq!(
        version.trim(),
        concat!("stockade ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn servers_that_cannot_be_used_end_the_start_with_one_line() {
    let admin = [
        "serve",
        "--admin-token",
        ADMIN_TOKEN,
        "--trust-buyer-header",
    ];
    let listen = ["--listen", "127.0.0.1:0", "--startup-wait-seconds", "0"];
    for (more, word) in [
        (
            ["--database-url", "mysql://root:hidden@localhost/x"],
            "database",
        ),
        (["--redis-url", "http://user:hidden@localhost"], "Redis"),
        (["--redis-url", "redis+unix:///nowhere/redis.sock"], "Redis"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite://{}/ledger.db", folder.path().display());
        let given = more[0] == "--database-url";
        let mut arguments = [&admin[..], &listen, &more].concat();
        if !given {
            arguments.extend(["--migrate", "--database-url", &database]);
        }
        let output = run(&arguments, &[]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && output.status.code().is_some(),
            "{error}"
        );
        let last = error.lines().last().unwrap();
        assert!(
            last.starts_with("stockade: ") && last.contains(word),
            "{more:?}: {error}"
        );
        assert!(
            !error.contains("hidden"),
            "{more:?} shows a password: {error}"
        );
    }
}

#[tokio::test]
async fn a_redis_that_would_evict_stock_is_refused() {
    let options = RedisOptions {
        args: vec!["--maxmemory-policy".into(), "allkeys-lru".into()],
        ..RedisOptions::default()
    };
    let redis = RedisServer::start(&options).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let refused = App::build(&config(&redis, &folder, &["--trust-buyer-header"])).await;
    let error = refused.expect_err("it would lose stock");
    assert!(
        matches!(&error, StartError::Evicts(policy) if policy == "allkeys-lru"),
        "{error}"
    );
    assert!(error.to_string().contains("noeviction"), "{error}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let redis = RedisServer::start(&RedisOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut config = config(&redis, &folder, &["--trust-buyer-header"]);
    config.http.listen = address.parse().unwrap();
    let error = App::build(&config).await.expect_err("the address is taken");
    assert!(error.to_string().contains(&address), "{error}");
}
