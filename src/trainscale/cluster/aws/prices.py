"""The hourly price of an instance type, from AWS's own price list. There is no table here: prices change."""

from __future__ import annotations

import json
from collections.abc import Iterable

_REGION = "us-east-1"  # serves the price list of all regions


def find_hourly_price(region: str, instance_type: str) -> float | None:
    """Return the dollars per hour on demand; None if the price list cannot be reached or has no such price."""
    import boto3
    from botocore.config import Config

    filters = {
        "instanceType": instance_type,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    config = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
    try:
        response = boto3.client("pricing", region_name=_REGION, config=config).get_products(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
            MaxResults=1,
        )
        return read_price(response["PriceList"])
    except Exception:  # a price is only for information; without permission or network there is none
        return None


def read_price(price_list: Iterable[str]) -> float | None:
    """Return the price of the first product in a price list of AWS."""
    for product in map(json.loads, price_list):
        for term in product.get("terms", {}).get("OnDemand", {}).values():
            for dimension in term["priceDimensions"].values():
                return float(dimension["pricePerUnit"]["USD"])
    return None
