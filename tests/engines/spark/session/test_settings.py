"""Settings: the user's win over ours, but not over what programs mean; secrets are never shown."""

from __future__ import annotations

import pytest

from penstock.engines.spark.session import settings
from penstock.engines.spark.session.settings import is_secret, without_secrets
from penstock.errors import EngineError

KEY = "spark.hadoop.fs.s3a.secret.key"


def test_embedded_spark_listens_on_loopback_only_and_has_no_web_page() -> None:
    core = settings.core_settings(settings.EMBEDDED, {})
    assert core["spark.python.unix.domain.socket.enabled"] == "true"
    assert core["spark.driver.bindAddress"] == core["spark.driver.host"] == "127.0.0.1"
    assert core["spark.ui.enabled"] == "false"
    assert core["spark.python.daemon.module"] == "penstock.engines.spark.session.daemon"


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local[*,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://localhost.example.org:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("yarn", False),
    ],
)
def test_the_driver_hides_behind_loopback_unless_executors_are_elsewhere(master: str, here: bool) -> None:
    assert ("spark.driver.bindAddress" in settings.core_settings(master, {})) is here


def test_a_cluster_starts_its_workers_without_our_daemon() -> None:
    assert "spark.python.daemon.module" not in settings.core_settings("spark://10.0.0.1:7077", {})


def test_the_users_settings_win_and_ours_stay_where_they_say_nothing() -> None:
    conf = {"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "99"}
    assert settings.core_settings("local", conf)["spark.ui.enabled"] == "true"
    sql = settings.sql_settings(conf, partitions=4, checkpoint=None)
    assert sql["spark.sql.shuffle.partitions"] == "99"
    assert int(sql["spark.sql.execution.arrow.maxRecordsPerBatch"]) >= 100_000
    assert sql["spark.sql.session.timeZone"] == "UTC"


def test_the_application_is_named_after_the_program_unless_the_user_names_it() -> None:
    assert settings.core_settings("local", {}, "views")["spark.app.name"] == "views"
    assert settings.core_settings("local", {"spark.app.name": "mine"}, "views")["spark.app.name"] == "mine"


def test_what_spark_submit_was_told_wins_over_ours_and_the_program_wins_over_both() -> None:
    conf = {"spark.ui.showConsoleProgress": "true"}
    core = settings.core_settings("yarn", conf, "views")
    submitted = {
        "spark.ui.enabled": "true",
        "spark.app.name": "program.py",
        "spark.ui.showConsoleProgress": "false",
    }
    result = settings.under_submit(core, conf, submitted, "program.py")
    assert "spark.ui.enabled" not in result
    assert result["spark.app.name"] == "views"  # spark-submit took the name of the file, nobody's choice
    assert result["spark.ui.showConsoleProgress"] == "true"
    assert "spark.app.name" not in settings.under_submit(core, conf, {"spark.app.name": "mine"}, "program.py")


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({}, 2),
        ({"spark.executor.instances": "10", "spark.executor.cores": "4"}, 40),
        ({"spark.executor.instances": "10"}, 10),
        ({"spark.cores.max": "16"}, 16),
        ({"spark.cores.max": "1"}, 2),
        ({"spark.cores.max": "16", "spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ({"spark.dynamicAllocation.enabled": "true"}, 2),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "8"}, 8),
        ({"spark.dynamicAllocation.maxExecutors": "8"}, 2),
        (
            {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2147483647"},
            2,
        ),
        ({"spark.default.parallelism": "2", "spark.cores.max": "16"}, 2),
    ],
)
def test_a_run_is_planned_for_the_cores_that_are_promised_and_not_only_for_those_that_came_first(
    conf: dict[str, str], cores: int
) -> None:
    assert settings.expected_cores(conf, 2) == cores


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn", "k8s://https://host:6443", "local"])
def test_none_of_our_settings_is_about_allocation_speculation_or_retries(master: str) -> None:
    words = ("dynamicAllocation", "speculation", "maxFailures", "excludeOnFailure", "decommission")
    assert not any(word in key for key in settings.core_settings(master, {}) for word in words)
    assert not any(
        word in key for key in settings.sql_settings({}, partitions=1, checkpoint=None) for word in words
    )


def test_the_users_java_options_come_after_ours() -> None:
    options = settings.core_settings("local", {"spark.driver.extraJavaOptions": "-Da=b"})
    log, memory, theirs = options["spark.driver.extraJavaOptions"].split(" ")
    assert log.startswith("-Dlog4j2.configurationFile=file:")
    assert (memory, theirs) == ("-XX:+ExitOnOutOfMemoryError", "-Da=b")


@pytest.mark.parametrize(
    ("checkpoint", "local"),
    [(None, True), ("out/state", True), ("file:///srv/x", True), ("s3a://b/x", False), ("hdfs://n/x", False)],
)
def test_the_quick_file_manager_is_for_local_checkpoints_only(checkpoint: str | None, local: bool) -> None:
    sql = settings.sql_settings({}, partitions=1, checkpoint=checkpoint)
    assert (settings.FILE_MANAGER in sql) is local


def test_values_are_written_as_spark_writes_them() -> None:
    assert settings.check_conf({"spark.a": True, "spark.b": 4, "spark.c": "x"}) == {
        "spark.a": "true",
        "spark.b": "4",
        "spark.c": "x",
    }


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "utc"])
def test_utc_by_any_name_is_accepted(zone: str) -> None:
    assert settings.check_conf({"spark.sql.session.timeZone": zone})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("spark.sql.session.timeZone", "Europe/Berlin", "times are in UTC on every engine"),
        ("spark.sql.caseSensitive", "false", 'columns "a" and "A" are two columns'),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", "the legacy calendar"),
        ("spark.sql.files.ignoreMissingFiles", "true", "rows of a file that cannot be read would be lost"),
    ],
)
def test_a_setting_that_would_change_what_programs_mean_is_refused(key: str, value: str, reason: str) -> None:
    with pytest.raises(EngineError, match=f"the setting {key} cannot be '{value}'") as caught:
        settings.check_conf({key: value})
    assert reason in str(caught.value.detail)
    assert caught.value.hint


@pytest.mark.parametrize("key", ["driver.memory", 5])
def test_what_is_no_setting_of_spark_is_refused(key: object) -> None:
    with pytest.raises(EngineError, match="is not a setting of Spark") as caught:
        settings.check_conf({key: "1g"})  # type: ignore[dict-item]  # the mistake under test
    assert "spark." in str(caught.value.hint)


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "spark.x.apiKey",
        "spark.kubernetes.oauthToken",
        "spark.hadoop.fs.azure.account.key.x.dfs",
        "spark.db.pwd",
        "spark.db.userPwd",
        "spark.db.pass",
        "spark.ssh.passphrase",
        "spark.x.passcode",
        "spark.x.encryptionKey",
        "spark.x.signing.key",
        "spark.kafka.sasl.jaas.config",
        "spark.x.bearer",
    ],
)
def test_keys_that_name_secrets_are_known(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize("key", ["spark.driver.memory", "spark.sql.shuffle.passThrough", "spark.x.bypassing"])
def test_other_keys_are_not_taken_for_secrets(key: str) -> None:
    assert not is_secret(key)


def test_shown_texts_hold_no_secret() -> None:
    conf = {KEY: "hunter2", "spark.driver.memory": "1g", "spark.proxy": "http://ann:pw@host"}
    text = f"bad hunter2; --conf {KEY}=hunter2 --conf spark.other.password=zzz at spark://ann:pw@host:7077"
    message = without_secrets(text, conf)
    assert not any(secret in message for secret in ("hunter2", "zzz", "ann", "pw@"))
    assert "spark.other.password" in message
